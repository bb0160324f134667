package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// chunk is the most bytes of the log that one event carries.
const chunk = 32 << 10

// follower streams the output of a run as it is written.
type follower struct {
	*request
	out     events
	id      string
	attempt int      // the attempt whose log is read
	at      int64    // offset in that log
	sent    wire.Run // last state that was sent
}

// followOutput streams the output of a run until the run has ended. It starts at the
// beginning, or after the last event that the client received. If a new attempt has
// started since, it starts at the beginning of that attempt's output.
func followOutput(r *request, run wire.Run) error {
	f := &follower{request: r, id: run.TaskID, attempt: run.Attempt}
	if err := f.resume(r.Header.Get("Last-Event-ID")); err != nil {
		return err
	}
	happens := r.session.Watch(r.Context()) // before the first read, so that no event is missed
	var err error
	if f.out, err = r.stream(); err != nil || r.Method == http.MethodHead {
		return nil // the client has disconnected
	}
	if err := f.follow(r.Context(), happens); err != nil && r.Context().Err() == nil && !errors.Is(err, errGone) {
		r.api.log.Warn("following output failed", "task_id", run.TaskID, "error", err)
	}
	return nil // the response has begun: the client sees that the end event is missing
}

// lookAgain is how often a followed run is polled, in case its events are lost.
const lookAgain = time.Second

// errGone reports that the client has disconnected or reads too slowly.
var errGone = errors.New("the client is gone")

// resume continues after the event with this id.
func (f *follower) resume(id string) error {
	if id == "" {
		return nil
	}
	if !placeForm.MatchString(id) {
		return invalid("Last-Event-ID", "expected the id of an event of this stream")
	}

	attempt, offset, _ := strings.Cut(id, ":")
	n, _ := strconv.Atoi(attempt)
	at, _ := strconv.ParseInt(offset, 10, 64) // the pattern allows only numbers
	if n == f.attempt {
		f.at = at
	}
	return nil
}

func (f *follower) follow(ctx context.Context, happens <-chan wire.Event) error {
	alive, again := time.NewTicker(heartbeat), time.NewTicker(lookAgain)
	defer alive.Stop()
	defer again.Stop()

	for {
		run, err := f.session.Run(ctx, f.id)
		if err == nil {
			err = f.report(ctx, run)
		}
		if err != nil || run.Done {
			return err
		}

		for changed := false; !changed; {
			select {
			case e, ok := <-happens:
				if !ok {
					return nil
				}
				changed = e.Kind == wire.EventMissed || e.Run != nil && e.Run.TaskID == f.id
			case <-again.C: // events of other hosts may be lost
				changed = true
			case <-alive.C:
				if err := f.out.beat(); err != nil {
					return err
				}
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// report sends the changes of a run. Output comes first, so that it is complete before
// the end event.
func (f *follower) report(ctx context.Context, run wire.Run) error {
	f.reach(run.Attempt)
	for more := true; more; {
		var err error
		if more, err = f.read(ctx, run.Status.Terminal()); err != nil {
			return err
		}
	}

	switch {
	case run.Done:
		whole, err := f.session.WholeRun(ctx, f.id)
		if err != nil {
			return err
		}
		whole.Args = ""
		return f.out.send(wire.StreamEnd, f.place(), f.shown(whole))
	case f.sent.TaskID == "" || !sameState(run, f.sent):
		f.sent = run
		return f.out.send(wire.StreamRun, f.place(), f.shown(run))
	}
	return nil
}

// reach switches to the log of attempt if that is a later one, and reports whether it is.
func (f *follower) reach(attempt int) bool {
	if attempt <= f.attempt {
		return false
	}
	f.attempt, f.at = attempt, 0
	return true
}

// sameState reports whether two states of a run are the same, apart from output.
func sameState(a, b wire.Run) bool {
	same := a.Progress == b.Progress || a.Progress != nil && b.Progress != nil && *a.Progress == *b.Progress
	return same && a.Status == b.Status && a.Attempt == b.Attempt && a.Detail == b.Detail && (a.Stopping == nil) == (b.Stopping == nil)
}

// read sends the next chunk of the log, and reports whether there may be more.
func (f *follower) read(ctx context.Context, ended bool) (more bool, err error) {
	c, err := f.session.Tail(ctx, f.id, f.at, chunk)
	if err != nil {
		return false, err
	}
	if from := f.at; f.reach(c.Attempt) && from > 0 { // a new attempt has started since the run was read
		return true, nil
	}

	if len(c.Data) > 0 && (!ended || c.Offset+int64(len(c.Data)) < c.End) {
		c.Data = c.Data[:len(c.Data)-server.PartialRune(c.Data)]
	}
	if len(c.Data) == 0 {
		return false, nil
	}

	out := wire.Output{Attempt: f.attempt, Offset: c.Offset, Omitted: c.Offset - f.at}
	f.at = c.Offset + int64(len(c.Data))
	return f.at < c.End, f.out.sendOutput(f.place(), out, c.Data)
}

// place returns the id for an event: the position in the log up to which the client has
// received the output.
func (f *follower) place() string { return fmt.Sprintf("%d:%d", f.attempt, f.at) }
