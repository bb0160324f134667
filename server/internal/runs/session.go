package runs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/agent"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/dryrun"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// Sessions gives access to the runs and schedules of a server.
type Sessions struct {
	Manager  *background.Manager
	Engine   engine.Engine
	Catalog  *catalog.Catalog
	Checker  *approval.Checker
	Follower *Follower
	Audit    *record.Auditor
	Files    bool                                      // operators can open the files of runs
	Version  func(t *catalog.Tool) (string, error)     // version of the tool's plugin
	Pass     func(ctx context.Context, s *Spawn) error // passes a run, or a schedule, through the stages
}

// A Session is one session, or all of them. The session without a name is always empty.
type Session struct {
	*Sessions
	Name string
	All  bool
}

func (v Session) isNobody() bool { return v.Name == "" && !v.All }

// Find returns the record of a run.
func (v Session) Find(ctx context.Context, id string) (engine.Run, error) {
	if v.All {
		return v.Manager.Find(ctx, id)
	}
	return v.Manager.Get(ctx, v.Name, id)
}

// Run returns a run without its arguments, its result and its content.
func (v Session) Run(ctx context.Context, id string) (wire.Run, error) {
	r, err := v.Find(ctx, id)
	if err != nil {
		return wire.Run{}, err
	}
	return shape.Run(r, time.Now()), nil
}

// WholeRun returns a run with its arguments, result and content.
func (v Session) WholeRun(ctx context.Context, id string) (wire.Run, error) {
	r, err := v.Find(ctx, id)
	if err == nil {
		err = load(ctx, v.Manager, &r, engine.PartArgs, engine.PartResult, engine.PartContent)
	}
	if err != nil {
		return wire.Run{}, err
	}
	return shape.Run(r, time.Now()), nil
}

// List returns the runs that a query selects, newest first.
func (v Session) List(ctx context.Context, query engine.Query) ([]wire.Run, error) {
	if v.isNobody() {
		return nil, nil
	}
	if !v.All {
		query.Session = v.Name
	}
	found, err := v.Manager.List(ctx, query)
	if err != nil {
		return nil, err
	}

	all, now := make([]wire.Run, len(found)), time.Now()
	for i, r := range found {
		all[i] = shape.Run(r, now)
	}
	return all, nil
}

// Remove removes a run that has ended.
func (v Session) Remove(ctx context.Context, id string) error {
	r, err := v.Find(ctx, id)
	switch {
	case err != nil:
		return err
	case dryrun.In(ctx) && !r.Final():
		return fmt.Errorf("%w: %s", engine.ErrActive, id)
	case dryrun.In(ctx):
		return nil
	}
	if err := v.Manager.Remove(ctx, r.Session, id); err != nil {
		return err
	}
	v.Audit.Admin("run removed", r.Session, id)
	return nil
}

// check is like the manager's Check, but returns early if one of the runs asks its user
// something: the run may not end before somebody answers.
func (v Session) check(ctx context.Context, r background.CheckRequest) (background.CheckResult, error) {
	r.Peek = r.Peek || dryrun.In(ctx)
	asked, stop := v.Asked(ctx, r.IDs)
	defer stop()
	r.Enough = asked
	return v.Manager.Check(ctx, v.Name, r)
}

// Check returns runs in full, with their results and content. The parameter large is the
// maximum size of these together, in bytes; 0 means no limit.
func (v Session) Check(ctx context.Context, r background.CheckRequest, large int) (wire.Runs, error) {
	checked, err := v.check(ctx, r)
	if err != nil {
		return wire.Runs{}, err
	}

	var out wire.Runs
	if checked.Missing != nil {
		out.Missing = checked.Missing.IDs
	}
	room := cmp.Or(large, math.MaxInt)
	for _, report := range checked.Reports {
		if err := load(ctx, v.Manager, &report.Run, engine.PartArgs, engine.PartResult, engine.PartContent); err != nil {
			return wire.Runs{}, err
		}
		omitted := shape.Omit(&report.Result, &report.Content, &room)
		run := shape.Run(report.Run, time.Now())
		run.ResultBytes, run.ContentBytes = omitted.ResultBytes, omitted.ContentBytes
		run.WaitedSeconds, run.Output = shape.Tenths(checked.Waited), report.Output
		if !run.Done {
			run.Questions = v.Follower.Questions.Open(ctx, report.Run)
		}
		out.Runs = append(out.Runs, run)
	}
	return out, nil
}

// Watch returns a channel with the events from now on. It is closed when ctx is done.
func (v Session) Watch(ctx context.Context) <-chan wire.Event {
	to := make(chan wire.Event)
	if v.isNobody() {
		context.AfterFunc(ctx, func() { close(to) })
		return to
	}
	from := v.Manager.Watch(ctx, v.Name)
	go func() {
		defer close(to)
		for e := range from {
			select {
			case to <- shape.Event(e, time.Now()):
			case <-ctx.Done():
				return
			}
		}
	}()
	return to
}

// Stop asks a run and its children to end, and waits until they have ended, or the
// grace period is over.
func (v Session) Stop(ctx context.Context, id, by string, how wire.Stop) (wire.Stopped, error) {
	if dryrun.In(ctx) {
		run, err := v.Run(ctx, id)
		return wire.Stopped{TaskID: run.TaskID, Status: run.Status, AlreadyFinished: run.Status.Terminal(), Unsaved: run.Unsaved, DryRun: true}, err
	}
	r, err := v.Manager.Stop(ctx, v.Name, id, background.StopRequest{Force: how.Force, Reason: how.Reason, By: by, Alone: how.Alone})
	if err == nil {
		v.Audit.Stop(r, by, how.Reason)
		err = load(ctx, v.Manager, &r, engine.PartResult, engine.PartContent)
	}
	return shape.Stopped(r), err
}

// Notices returns up to limit pending notices; 0 means no limit.
func (v Session) Notices(ctx context.Context, limit int) (wire.Notices, error) {
	shown, more, err := v.Manager.Pending(ctx, v.Name, limit)
	if err != nil {
		return wire.Notices{}, err
	}
	return newNotices(shown, more, v.Files), nil
}

// SelectNotices is like Notices, but only returns notices of runs for which want returns true.
func (v Session) SelectNotices(ctx context.Context, limit int, want func(wire.Run) bool) (wire.Notices, error) {
	const first = 100
	pending, more, err := v.Manager.Pending(ctx, v.Name, first)
	if err != nil {
		return wire.Notices{}, err
	}

	var shown []engine.Run
	now := time.Now()
	for i, run := range pending {
		if len(shown) == limit {
			more += len(pending) - i
			break
		}
		if want(shape.Run(run, now)) {
			shown = append(shown, run)
		}
	}
	return newNotices(shown, more, v.Files), nil
}

// newNotices returns notices of runs, with their text.
func newNotices(shown []engine.Run, more int, kept bool) wire.Notices {
	out := wire.Notices{Notices: make([]wire.Notice, len(shown)), More: more}
	for i, n := range shown {
		out.Notices[i] = shape.Notice(n, kept)
	}

	out.Text = background.RenderNotices(shown, out.More, agent.NoticeHints)
	return out
}

// Questions returns the questions that a run has asked its user and that are still open, by
// key.
func (v Session) Questions(ctx context.Context, id string) (map[string]abi.Question, error) {
	run, err := v.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	return v.Follower.Questions.Open(ctx, run), nil
}

// Asked returns a channel that is closed once one of these runs asks its user something.
func (v Session) Asked(ctx context.Context, ids []string) (asked <-chan struct{}, stop func()) {
	runs := make([]engine.Run, len(ids))
	for i, id := range ids {
		run, err := v.Find(ctx, id)
		if err != nil {
			run = engine.Run{Session: v.Name, ID: id}
		}
		runs[i] = run
	}
	return v.Follower.Questions.Watch(ctx, runs)
}

// Answer answers questions of a run.
func (v Session) Answer(ctx context.Context, id string, answers map[string]abi.Answer) error {
	run, err := v.Find(ctx, id)
	if err != nil {
		return err
	}
	return v.Follower.Questions.Answer(ctx, run, answers)
}

// Send sends a message to an active run whose tool reads messages.
func (v Session) Send(ctx context.Context, id, by string, message json.RawMessage) (wire.Message, error) {
	run, err := v.Find(ctx, id)
	if err == nil && run.Status.Terminal() {
		err = ended(run)
	}
	if err == nil {
		err = v.readsMessages(run)
	}
	if err != nil {
		return wire.Message{}, err
	}

	box := v.Manager.Mailbox(run.Session, id)
	if dryrun.In(ctx) {
		m, err := box.Check(ctx, by, message)
		return newMessage(m), refusedMessage(run, err)
	}
	m, err := box.Send(ctx, by, message)
	return newMessage(m), refusedMessage(run, err)
}

// readsMessages returns an error if the tool of an active run does not read messages.
func (v Session) readsMessages(run engine.Run) error {
	tool, err := v.Catalog.Lookup(run.Tool)
	switch {
	case errors.Is(err, plugins.ErrNoTool):
		return reason.Refuse("%s was removed from this host while %s ran: that run gets no more messages. Wait for its end, or stop it", run.Tool, run.ID)
	case err == nil && !tool.Hints.Messages:
		err = reason.Refuse("%s does not read messages: wait for the end of %s, or stop it and run %s with other arguments", run.Tool, run.ID, run.Tool)
	}
	return err
}

// ended refuses a message to a run that has ended.
func ended(run engine.Run) error {
	return &reason.Error{Reason: reason.Reason{Code: wire.CodeConflict,
		Text: fmt.Sprintf("%s has ended (%s) and takes no more messages: read its result, or run %s again", run.ID, run.Status, run.Tool)}, Err: background.ErrEnded}
}

// refusedMessage returns an error that says what to do about a message that the mailbox
// refused.
func refusedMessage(run engine.Run, err error) error {
	if errors.Is(err, background.ErrEnded) {
		return ended(run)
	}
	if limit, ok := errors.AsType[*engine.LimitError](err); ok && !errors.Is(err, engine.ErrRecordLimit) {
		return &reason.Error{Reason: reason.Reason{Code: wire.CodeLimit, Max: limit.Max, Retry: fullRetry, Text: fmt.Sprintf(
			"the mailbox of %s is full: send the message again when its tool has read some of the others", run.ID)}, Err: err}
	}
	return err
}

// fullRetry is the time after which a full mailbox may have room again.
const fullRetry = 5 * time.Second

// Messages returns the unread messages of a run, in the order they were sent.
func (v Session) Messages(ctx context.Context, id string) (wire.Messages, error) {
	run, err := v.Find(ctx, id)
	if err != nil {
		return wire.Messages{}, err
	}
	found, err := v.Manager.Mailbox(run.Session, id).List(ctx)
	out := wire.Messages{Messages: make([]wire.Message, len(found))}
	for i, m := range found {
		out.Messages[i] = newMessage(m)
	}
	return out, err
}

func newMessage(m background.Message) wire.Message {
	return wire.Message{ID: m.ID, SentAt: m.At, By: m.By, Message: m.Data}
}

// load reads parts of a run. They stay nil if the record is gone.
func load(ctx context.Context, from Runs, r *engine.Run, parts ...engine.Part) error {
	to := map[engine.Part]*json.RawMessage{engine.PartArgs: &r.Args, engine.PartResult: &r.Result, engine.PartContent: &r.Content}
	for _, part := range parts {
		data, err := from.Payload(ctx, r.Session, r.ID, part)
		if err != nil && !errors.Is(err, engine.ErrNotFound) {
			return err
		}
		*to[part] = data
	}
	return nil
}
