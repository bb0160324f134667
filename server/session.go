package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/server/internal/agent"
	"github.com/toolhost/toolhost/server/internal/calllog"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// Session gives access to one session: its runs, their output, its schedules and its
// notices. It is a small value, safe for concurrent use.
//
// For a run that the session does not have, the error has the reason
// [wire.CodeNotFound]: see [ReasonOf].
type Session struct {
	service *Service
	name    string
	all     bool
}

// Session returns the session with that name. An unknown session is empty.
func (s *Service) Session(name string) Session { return Session{service: s, name: name} }

// AllSessions gives operators access to the runs and schedules of all sessions. To act on
// a run, or to read its output, use its session.
func (s *Service) AllSessions() Session { return Session{service: s, all: true} }

// isNobody reports whether v is the session without a name, which has nothing: to the manager,
// no name means all sessions.
func (v Session) isNobody() bool { return v.name == "" && !v.all }

// RunQuery selects runs. Its zero value selects all.
type RunQuery struct {
	Session string // with [Service.AllSessions]: only runs of this session; empty selects all
	Parent  string // only children of the run with this id
	Active  bool   // only runs that have not ended
	Before  string // only runs submitted before the run with this id
	Limit   int    // at most this many; 0 is no limit
	RunFilter
}

// RunFilter selects runs by their properties: see engine.Filter and its parts.
type (
	RunFilter    = engine.Filter
	RunStatus    = engine.Status
	RunErrorKind = engine.ErrorKind
)

// CheckRequest says what to check. Only IDs is required.
type CheckRequest struct {
	IDs      []string      // 1 to MaxIDs
	Wait     time.Duration // how long to wait for the end; cut to MaxWait
	Until    string        // UntilAny or UntilAll; empty is UntilAny
	Cursor   string        // from an earlier excerpt: show only later output; only with one id
	MaxChars int           // characters of output of each run; 0 shows none
	Large    int           // bytes of the results and contents of all runs; more is left out. 0 is no limit
}

// Limits and modes of checks.
const (
	MaxIDs   = background.MaxIDs   // runs of one check
	MaxWait  = background.MaxWait  // the longest wait of a check
	MaxChars = background.MaxChars // characters of output of one run

	UntilAny = string(background.UntilAny) // wait for the first run to end
	UntilAll = string(background.UntilAll) // wait for all of them
)

// A Chunk is a piece of a run's raw log.
type Chunk = engine.Chunk

// A Log is all that is kept of a run's raw log.
type Log = background.Log

// An Artifact is an open file of a run.
type Artifact interface {
	io.ReadSeekCloser
	io.ReaderAt
}

// Run returns a run without its arguments, its result and its content.
func (v Session) Run(ctx context.Context, id string) (wire.Run, error) {
	r, err := v.record(ctx, id)
	if err != nil {
		return wire.Run{}, err
	}
	return shape.Run(r, time.Now()), nil
}

// WholeRun returns a run with everything it has, however large.
func (v Session) WholeRun(ctx context.Context, id string) (wire.Run, error) {
	r, err := v.record(ctx, id)
	if err == nil {
		err = v.load(ctx, &r, engine.PartArgs, engine.PartResult, engine.PartContent)
	}
	if err != nil {
		return wire.Run{}, err
	}
	return shape.Run(r, time.Now()), nil
}

// Remove removes a run that has ended, with its output, its files and its notice. The
// reason of the error is [wire.CodeConflict] if the run has not ended. A dry run only
// makes these checks.
func (v Session) Remove(ctx context.Context, id string) error {
	r, err := v.record(ctx, id)
	switch {
	case err != nil:
		return err
	case InDryRun(ctx) && !r.Final():
		return fmt.Errorf("%w: %s", engine.ErrActive, id)
	case InDryRun(ctx):
		return nil
	}
	if err := v.service.runs.Remove(ctx, r.Session, id); err != nil {
		return err
	}
	v.service.audit.Admin("run removed", r.Session, id)
	return nil
}

// Diagnosis explains why a run failed; nil if its error says everything. It is for
// operators only: the text may contain secrets of the tool and internals of the host.
func (v Session) Diagnosis(ctx context.Context, id string) (*wire.Diagnosis, error) {
	r, err := v.record(ctx, id)
	return shape.Diagnosis(r.Diagnosis), err
}

// Calls returns the calls made by the tool of a run, directly and through other tools,
// including calls that were runs of their own: of each run the first [wire.MaxInnerCalls]
// calls of its last attempt, and 1,000 in all. It is for people, not for models.
func (v Session) Calls(ctx context.Context, id string) (wire.InnerCalls, error) {
	return calllog.Reader{Find: v.record, Payload: v.service.runs.Payload}.Tree(ctx, id)
}

func (v Session) record(ctx context.Context, id string) (engine.Run, error) {
	if v.all {
		return v.service.runs.Find(ctx, id)
	}
	return v.service.runs.Get(ctx, v.name, id)
}

// load reads parts of a run's payload. They stay nil if the record is gone.
func (v Session) load(ctx context.Context, r *engine.Run, parts ...engine.Part) error {
	to := map[engine.Part]*json.RawMessage{engine.PartArgs: &r.Args, engine.PartResult: &r.Result, engine.PartContent: &r.Content}
	for _, part := range parts {
		data, err := v.service.runs.Payload(ctx, r.Session, r.ID, part)
		if err != nil && !errors.Is(err, engine.ErrNotFound) {
			return err
		}
		*to[part] = data
	}
	return nil
}

// Runs returns runs, the newest first, without their arguments, results and
// content.
func (v Session) Runs(ctx context.Context, q RunQuery) ([]wire.Run, error) {
	if v.isNobody() {
		return nil, nil
	}
	query := engine.Query{Parent: q.Parent, Active: q.Active, Before: q.Before, Limit: q.Limit, Filter: q.RunFilter}
	if query.Session = v.name; v.all {
		query.Session = q.Session
	}

	found, err := v.service.runs.List(ctx, query)
	if err != nil {
		return nil, err
	}

	runs, now := make([]wire.Run, len(found)), time.Now()
	for i, r := range found {
		runs[i] = shape.Run(r, now)
	}

	return runs, nil
}

// check is Check of the manager, but returns early if one of the runs asks its user
// something: the run may not end before somebody answers.
func (v Session) check(ctx context.Context, r background.CheckRequest) (background.CheckResult, error) {
	r.Peek = r.Peek || InDryRun(ctx)
	asked, stop := v.Asked(ctx, r.IDs)
	defer stop()
	r.Enough = asked
	return v.service.runs.Check(ctx, v.name, r)
}

// Check returns runs with everything they have. If asked to, it waits for them to end. It
// returns early if one of them asks its user something: that run may not end before
// somebody answers.
//
// Ids that the session does not have are in Missing; if it has none of them, that is the
// error. Notices stay pending.
func (v Session) Check(ctx context.Context, r CheckRequest) (wire.Runs, error) {
	checked, err := v.check(ctx, background.CheckRequest{
		IDs: r.IDs, Wait: r.Wait, Until: background.Until(r.Until), Cursor: r.Cursor, MaxChars: cmp.Or(r.MaxChars, -1), Peek: true,
	})
	if err != nil {
		return wire.Runs{}, err
	}

	var out wire.Runs
	if checked.Missing != nil {
		out.Missing = checked.Missing.IDs
	}
	room := cmp.Or(r.Large, math.MaxInt)
	for _, report := range checked.Reports {
		if err := v.load(ctx, &report.Run, engine.PartArgs, engine.PartResult, engine.PartContent); err != nil {
			return wire.Runs{}, err
		}
		omitted := shape.Omit(&report.Result, &report.Content, &room)
		run := shape.Run(report.Run, time.Now())
		run.ResultBytes, run.ContentBytes = omitted.ResultBytes, omitted.ContentBytes
		run.WaitedSeconds, run.Output = shape.Tenths(checked.Waited), shape.Excerpt(report.Output)
		if !run.Done {
			run.Questions = v.service.asked.Open(ctx, report.Run)
		}
		out.Runs = append(out.Runs, run)
	}
	return out, nil
}

// Watch returns a channel of events of runs and schedules from now on. It is closed when
// ctx is done. A watcher that is too slow gets [wire.EventMissed].
func (v Session) Watch(ctx context.Context) <-chan wire.Event {
	to := make(chan wire.Event)
	if v.isNobody() {
		context.AfterFunc(ctx, func() { close(to) })
		return to
	}
	from := v.service.runs.Watch(ctx, v.name)
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

// Stop asks a run and its children to end, and waits until they have, or the grace period
// is over. The record keeps by as the requester; empty means the session's agent.
func (v Session) Stop(ctx context.Context, id, by string, how wire.Stop) (wire.Stopped, error) {
	if InDryRun(ctx) {
		run, err := v.Run(ctx, id)
		return wire.Stopped{TaskID: run.TaskID, Status: run.Status, AlreadyFinished: run.Status.Terminal(), Unsaved: run.Unsaved, DryRun: true}, err
	}
	r, err := v.service.runs.Stop(ctx, v.name, id, background.StopRequest{Force: how.Force, Reason: how.Reason, By: by, Alone: how.Alone})
	if err == nil {
		v.service.audit.Stop(r, by, how.Reason)
		err = v.load(ctx, &r, engine.PartResult, engine.PartContent)
	}
	return shape.Stopped(r), err
}

// Tail reads up to max bytes, at most 1 MiB, of the raw log of a run's current
// attempt from offset on; a negative offset counts from the end.
func (v Session) Tail(ctx context.Context, id string, offset int64, max int) (Chunk, error) {
	return v.service.runs.Tail(ctx, v.name, id, offset, max)
}

// Log returns all that is kept of the raw log of a run's current attempt.
func (v Session) Log(ctx context.Context, id string) (*Log, error) {
	return v.service.runs.Log(ctx, v.name, id)
}

// Open opens a file of a run that has ended: [wire.OutputLog] or
// [wire.ResultJSON]. The caller closes it.
func (v Session) Open(ctx context.Context, id, name string) (Artifact, error) {
	return v.service.runs.Open(ctx, v.name, id, name)
}

// Notices returns the pending notices of runs that have ended, at most limit of
// them; 0 is no limit. They stay pending until they are acknowledged.
func (v Session) Notices(ctx context.Context, limit int) (wire.Notices, error) {
	shown, more, err := v.service.runs.Pending(ctx, v.name, limit)
	if err != nil {
		return wire.Notices{}, err
	}
	return newNotices(shown, more, v.service.kept()), nil
}

// SelectNotices is Notices for the runs that want returns true for: at most limit of the
// first 100 pending ones. It calls want for one run after the other, and stops once there
// are limit of them.
func (v Session) SelectNotices(ctx context.Context, limit int, want func(wire.Run) bool) (wire.Notices, error) {
	const first = 100
	pending, more, err := v.service.runs.Pending(ctx, v.name, first)
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
	return newNotices(shown, more, v.service.kept()), nil
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

// Acknowledge removes the notices of these runs, because they were shown.
func (v Session) Acknowledge(ctx context.Context, ids []string) error {
	if InDryRun(ctx) {
		return nil
	}
	return v.service.runs.Acknowledge(ctx, v.name, ids)
}

// Snapshot describes the session's active runs to a model whose conversation
// was cut, in at most 1,000 characters. It is empty without active runs.
func (v Session) Snapshot(ctx context.Context) (string, error) {
	return v.service.runs.Snapshot(ctx, v.name, CheckBackground)
}

// End ends the session: it stops the session's parked calls, or all its runs, as
// Config.Runs says.
func (v Session) End(ctx context.Context) error {
	if InDryRun(ctx) {
		return nil
	}
	v.service.audit.Admin("session ended", v.name, "")
	return v.service.runs.EndSession(ctx, v.name)
}

// Clean returns raw output as it should be shown: as valid text, without escape
// sequences and control characters.
func Clean(raw []byte) string { return output.Clean(raw) }

// PartialRune returns how many bytes at the end of a piece of output are an incomplete
// character.
func PartialRune(p []byte) int { return output.PartialRune(p) }

// Partial is PartialRune that also counts an incomplete escape sequence.
func Partial(p []byte) int { return output.Partial(p) }
