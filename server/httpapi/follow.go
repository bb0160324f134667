package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/identity"
)

// The events of a followed output.
const (
	EventOutput = "output" // an [Output]
	EventRun    = "run"    // a [Run]: its status, its detail or its progress is new
	EventEnd    = "end"    // a [Run] that has ended: the last event
)

// follower sends what a run writes, as it writes it.
type follower struct {
	runs    *background.Manager
	caller  identity.Caller
	session string
	out     events
	attempt int   // whose log is read
	at      int64 // where in it
	told    background.Run
}

// follow streams a run's output until the run has ended. It begins at the
// beginning, or after the event a client saw last. A client that comes back
// after the run was started again gets the new attempt's output from its
// beginning.
func (a *API) follow(r *request, run background.Run) error {
	f := &follower{runs: a.service.Runs(), caller: r.caller, session: r.session, attempt: run.Attempt}
	if err := f.resume(r.Header.Get("Last-Event-ID")); err != nil {
		return err
	}
	release, err := a.occupy(r.Request)
	if err != nil {
		return err
	}
	defer release()
	happens := f.runs.Watch(r.Context(), r.session) // before the first look, so that nothing is missed between
	if f.out, err = r.stream(); err != nil || r.Method == http.MethodHead {
		return nil // the client is gone
	}
	if err := f.follow(r.Context(), run.ID, happens); err != nil && r.Context().Err() == nil && !errors.Is(err, errGone) {
		a.log.Warn("output not followed to its end", "task_id", run.ID, "error", err)
	}
	return nil // the answer has begun, and its end tells
}

// errGone is that the client does not take what it is sent.
var errGone = errors.New("the client is gone")

// resume goes on after the event with that id.
func (f *follower) resume(id string) error {
	if id == "" {
		return nil
	}
	if !placeForm.MatchString(id) {
		return invalid("Last-Event-ID", "expected the id of an event of this stream")
	}
	attempt, offset, _ := strings.Cut(id, ":")
	n, _ := strconv.Atoi(attempt)
	at, _ := strconv.ParseInt(offset, 10, 64) // its form says that it is a number
	if n == f.attempt {
		f.at = at
	}
	return nil
}

func (f *follower) follow(ctx context.Context, id string, happens <-chan background.Event) error {
	alive := time.NewTicker(heartbeat)
	defer alive.Stop()
	for {
		run, err := f.runs.Get(ctx, f.session, id)
		if run.Args = nil; err == nil { // they may be large, and a run may be followed for long
			err = f.tell(ctx, run)
		}
		if err != nil || run.Final() {
			return err
		}
		for changed := false; !changed; {
			select {
			case e, ok := <-happens:
				if !ok {
					return nil
				}
				if e.Kind == background.EventBeat && e.Run.ID == id && e.Run.Attempt == run.Attempt {
					err = f.tell(ctx, *e.Run)
				} else {
					changed = e.Kind == background.EventMissed || e.Run != nil && e.Run.ID == id
				}
			case <-alive.C:
				err = f.send("", "", nil)
			case <-ctx.Done():
				return nil
			}
			if err != nil {
				return err
			}
		}
	}
}

// tell sends what is new of a run: output first, so that it is complete when
// the end is told.
func (f *follower) tell(ctx context.Context, run background.Run) error {
	f.reach(run.Attempt)
	for more := true; more; {
		var err error
		if more, err = f.read(ctx, run); err != nil {
			return err
		}
	}
	switch {
	case run.Final():
		if err := f.out.w.hold(len(run.Result) + len(run.Content)); err != nil {
			return fmt.Errorf("%w: %w", errGone, err)
		}
		return f.send(EventEnd, f.cursor(), newRun(f.caller, run, time.Now()))
	case f.told.ID == "" || !sameBeat(run, f.told):
		f.told = run
		return f.send(EventRun, f.cursor(), newRun(f.caller, run, time.Now()))
	}
	return nil
}

// reach goes on with the log of a later attempt from its beginning. It reports
// whether there is one.
func (f *follower) reach(attempt int) bool {
	if attempt <= f.attempt {
		return false
	}
	f.attempt, f.at = attempt, 0
	return true
}

// sameBeat reports whether two states of a run look the same but for output.
func sameBeat(a, b background.Run) bool {
	same := a.Progress == b.Progress || a.Progress != nil && b.Progress != nil && *a.Progress == *b.Progress
	return same && a.Status == b.Status && a.Attempt == b.Attempt && a.Detail == b.Detail && (a.Cancel == nil) == (b.Cancel == nil)
}

// read sends the next piece of the log, and reports whether there may be more.
func (f *follower) read(ctx context.Context, run background.Run) (more bool, err error) {
	c, err := f.runs.Tail(ctx, f.session, run.ID, f.at, chunk)
	if err != nil {
		return false, err
	}
	if from := f.at; f.reach(c.Attempt) && from > 0 { // the run was started since its record was read
		return true, nil
	}
	if len(c.Data) == 0 {
		return false, nil
	}
	reaches := c.Offset + int64(len(c.Data))
	if !run.Status.Terminal() || reaches < c.End {
		c.Data = c.Data[:len(c.Data)-background.PartialRune(c.Data)]
	}
	if len(c.Data) == 0 {
		return false, nil
	}
	out := Output{Attempt: f.attempt, Offset: c.Offset, Omitted: c.Offset - f.at}
	if utf8.Valid(c.Data) {
		out.Text = string(c.Data)
	} else {
		out.Base64 = c.Data
	}
	f.at = c.Offset + int64(len(c.Data))
	return f.at < c.End, f.send(EventOutput, f.cursor(), out)
}

// chunk is how much of a log one event carries, in bytes.
const chunk = 32 << 10

func (f *follower) cursor() string { return fmt.Sprintf("%d:%d", f.attempt, f.at) }

// send sends an event, or that the server is there.
func (f *follower) send(event, id string, data any) error {
	var err error
	if event == "" {
		err = f.out.beat()
	} else {
		err = f.out.send(event, id, data)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}
