package server

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/server/internal/calllog"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/runs"
	"github.com/toolhost/toolhost/server/internal/values"
	"github.com/toolhost/toolhost/server/wire"
)

// Session gives access to one session: its runs, their output, its schedules and its
// notices. It is a small value, safe for concurrent use.
//
// If a run is not in the session, the error of a method that takes its id has the code
// [wire.CodeNotFound]: see [ReasonOf].
type Session struct{ in runs.Session }

// Session returns the session with that name. An unknown session is empty.
func (s *Service) Session(name string) Session {
	return Session{runs.Session{Sessions: s.sessions, Name: name}}
}

// AllSessions gives operators access to the runs and schedules of all sessions. To act on
// a run, or to read its output, use its session.
func (s *Service) AllSessions() Session {
	return Session{runs.Session{Sessions: s.sessions, All: true}}
}

// RunQuery selects runs. Its zero value selects all.
type RunQuery struct {
	Session string // with [Service.AllSessions]: only runs of this session; empty selects all
	Parent  string // only children of the run with this id
	Active  bool   // only runs that have not ended
	Before  string // only runs submitted before the run with this id
	Limit   int    // at most this many; 0 means no limit
	RunFilter
}

// RunFilter selects runs by their properties: see engine.Filter and its parts.
type (
	RunFilter    = engine.Filter
	RunStatus    = engine.Status
	RunErrorKind = engine.ErrorKind
)

// CheckRequest is a request to check runs. Only IDs is required.
type CheckRequest struct {
	IDs      []string      // ids of 1 to MaxIDs runs
	Wait     time.Duration // how long to wait for runs to end; cut to MaxWait
	Until    string        // what to wait for: UntilAny or UntilAll; empty means UntilAny
	Cursor   string        // cursor from an earlier excerpt, to show only later output; only with one id
	MaxChars int           // maximum length of the output of each run, in characters; 0 shows none
	Large    int           // maximum size of the results and content of all runs together, in bytes; the rest is left out. 0 means no limit
}

// Limits and modes of checks.
const (
	MaxIDs   = background.MaxIDs   // maximum number of runs of one check
	MaxWait  = background.MaxWait  // the longest wait of a check
	MaxChars = background.MaxChars // maximum length of the output of one run, in characters

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
func (v Session) Run(ctx context.Context, id string) (wire.Run, error) { return v.in.Run(ctx, id) }

// WholeRun returns a run with all its parts, however large.
func (v Session) WholeRun(ctx context.Context, id string) (wire.Run, error) {
	return v.in.WholeRun(ctx, id)
}

// Runs returns runs, the newest first, without their arguments, results and
// content.
func (v Session) Runs(ctx context.Context, q RunQuery) ([]wire.Run, error) {
	return v.in.List(ctx, engine.Query{Session: q.Session, Parent: q.Parent, Active: q.Active, Before: q.Before, Limit: q.Limit, Filter: q.RunFilter})
}

// Check returns runs with all their parts. If asked to, it waits for them to end. It returns
// early if one of them asks its user something: that run may not end before somebody
// answers.
//
// In the result, Missing lists the ids that the session does not have. If it has none of them,
// Check returns an error. Notices stay pending.
func (v Session) Check(ctx context.Context, r CheckRequest) (wire.Runs, error) {
	return v.in.Check(ctx, background.CheckRequest{
		IDs: r.IDs, Wait: r.Wait, Until: background.Until(r.Until), Cursor: r.Cursor, MaxChars: cmp.Or(r.MaxChars, -1), Peek: true,
	}, r.Large)
}

// Watch returns a channel with the events of runs and schedules from now on. It is closed when
// ctx is done. A watcher that is too slow gets [wire.EventMissed].
func (v Session) Watch(ctx context.Context) <-chan wire.Event { return v.in.Watch(ctx) }

// Stop asks a run and its children to end, and waits until they have ended or the grace
// period is over. The parameter by is recorded as the requester; empty means the session's
// agent.
func (v Session) Stop(ctx context.Context, id, by string, how wire.Stop) (wire.Stopped, error) {
	return v.in.Stop(ctx, id, by, how)
}

// Remove removes a run that has ended, with its output, its files and its notice. The
// reason of the error is [wire.CodeConflict] if the run has not ended. A dry run only
// makes these checks.
func (v Session) Remove(ctx context.Context, id string) error { return v.in.Remove(ctx, id) }

// Rerun starts a run with the tool, arguments, title, deadline and locale of an earlier run,
// in the session of that run, after the checks of [Session.Spawn]. A run with secret
// arguments is refused, because they were not stored. The parameter by is recorded as the
// requester of the new run; empty means the session's agent.
func (v Session) Rerun(ctx context.Context, id, by string) (wire.Run, error) {
	return v.in.Rerun(ctx, id, by)
}

// Diagnosis explains why a run failed; nil if the run's error already says everything. It is
// for operators only: the text may contain secrets of the tool and internals of the host.
func (v Session) Diagnosis(ctx context.Context, id string) (*wire.Diagnosis, error) {
	r, err := v.in.Find(ctx, id)
	return r.Diagnosis, err
}

// Calls returns the calls made by the tool of a run, directly and through other tools,
// including calls that were runs of their own. It returns the first [wire.MaxInnerCalls]
// calls of the last attempt of each run, and at most 1,000 calls in all. It is for people,
// not for models.
func (v Session) Calls(ctx context.Context, id string) (wire.InnerCalls, error) {
	return calllog.Reader{Find: v.in.Find, Payload: v.in.Manager.Payload}.Tree(ctx, id)
}

// Tail reads up to max bytes, at most 1 MiB, of the raw log of a run's current
// attempt from offset on; a negative offset counts from the end.
func (v Session) Tail(ctx context.Context, id string, offset int64, max int) (Chunk, error) {
	return v.in.Manager.Tail(ctx, v.in.Name, id, offset, max)
}

// Log returns all that is kept of the raw log of a run's current attempt.
func (v Session) Log(ctx context.Context, id string) (*Log, error) {
	return v.in.Manager.Log(ctx, v.in.Name, id)
}

// Open opens a file of a run that has ended: [wire.OutputLog] or
// [wire.ResultJSON]. The caller closes it.
func (v Session) Open(ctx context.Context, id, name string) (Artifact, error) {
	return v.in.Manager.Open(ctx, v.in.Name, id, name)
}

// Notices returns up to limit pending notices of runs that have ended; 0 means no limit.
// They stay pending until they are acknowledged.
func (v Session) Notices(ctx context.Context, limit int) (wire.Notices, error) {
	return v.in.Notices(ctx, limit)
}

// SelectNotices is like Notices, but only returns notices of runs for which want returns true:
// at most limit of them, among the first 100 pending ones. It calls want for one run after
// another, and stops once it has found limit notices.
func (v Session) SelectNotices(ctx context.Context, limit int, want func(wire.Run) bool) (wire.Notices, error) {
	return v.in.SelectNotices(ctx, limit, want)
}

// Acknowledge removes the notices of these runs, because they were shown.
func (v Session) Acknowledge(ctx context.Context, ids []string) error {
	if InDryRun(ctx) {
		return nil
	}
	return v.in.Manager.Acknowledge(ctx, v.in.Name, ids)
}

// Snapshot describes the session's active runs, in at most 1,000 characters, to a model whose
// conversation was truncated. It is empty if there are no active runs.
func (v Session) Snapshot(ctx context.Context) (string, error) {
	return v.in.Manager.Snapshot(ctx, v.in.Name, CheckBackground)
}

// End ends the session: it stops the session's parked calls, or all its runs, as
// Config.Runs says.
func (v Session) End(ctx context.Context) error {
	if InDryRun(ctx) {
		return nil
	}
	v.in.Audit.Admin("session ended", v.in.Name, "")
	return v.in.Manager.EndSession(ctx, v.in.Name)
}

// Questions returns the questions that a run has asked its user and that are still open, by
// key; nil if there are none.
func (v Session) Questions(ctx context.Context, id string) (map[string]abi.Question, error) {
	return v.in.Questions(ctx, id)
}

// Asked returns a channel that is closed as soon as one of these runs asks its user
// something, or at once if one already does. Call stop when done.
func (v Session) Asked(ctx context.Context, ids []string) (asked <-chan struct{}, stop func()) {
	return v.in.Asked(ctx, ids)
}

// Answer answers questions of a run, which continues once all are answered. Answers to
// closed or unknown questions are dropped. If an answer does not fit its question, the
// error matches [abi.ErrAnswer], and all questions stay open.
func (v Session) Answer(ctx context.Context, id string, answers map[string]abi.Answer) error {
	return v.in.Answer(ctx, id, answers)
}

// Send sends a message, at most 16 KiB of JSON, to an active run whose tool reads messages
// (the hint messages of its manifest). The parameter by is recorded as the sender; empty means
// the session's agent. A run can have at most 64 unread messages, and 256 KiB of them. In a
// dry run the message has no id, and is not sent.
func (v Session) Send(ctx context.Context, id, by string, message json.RawMessage) (wire.Message, error) {
	return v.in.Send(ctx, id, by, message)
}

// Messages returns the unread messages of a run, in the order they were sent. The end of
// the run removes them.
func (v Session) Messages(ctx context.Context, id string) (wire.Messages, error) {
	return v.in.Messages(ctx, id)
}

// SessionValues are the values that the tools of a session share: at most 256 values, and 1
// MiB in total. They are removed when the session ends, or when none was written for a week.
type SessionValues = values.Values

// Values returns the values that the tools of the session share.
func (v Session) Values() SessionValues { return values.OfSession(v.in.Engine, v.in.Name) }

// CheckAnswer checks an answer to the question with that key. The answer's action must be
// accept, decline or cancel. Only an accepted answer has content, which must fit the
// question's schema. The error matches [abi.ErrAnswer], or [abi.ErrQuestions] if the
// question's schema is invalid.
func CheckAnswer(key string, q abi.Question, a abi.Answer) error { return question.Check(key, q, a) }

// Clean returns raw output as it should be shown: as valid text, without escape
// sequences and control characters.
func Clean(raw []byte) string { return output.Clean(raw) }

// PartialRune returns how many bytes at the end of a piece of output belong to an incomplete
// character.
func PartialRune(p []byte) int { return output.PartialRune(p) }

// Partial is like PartialRune, but also counts an incomplete escape sequence.
func Partial(p []byte) int { return output.Partial(p) }
