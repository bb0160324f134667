package host

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// lifetime is the context of a call: it ends with the caller's, with the time
// limit, and with the host. Nearly all calls only ever ask whether they are
// over, which the clock answers: only those that wait for the end have a timer.
type lifetime struct {
	context.Context // the caller's
	call            *call
	deadline        time.Duration // after the call started: its limit, or the caller's if that is earlier

	ended atomic.Bool
	mu    sync.Mutex
	timed context.Context // with the timer; nil while nobody waits
	stop  func()          // of timed
}

// callKey finds the running call in the context wazero hands to host functions.
type callKey struct{}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// begin starts the lifetime of a call. It ends with end.
func (l *lifetime) begin(ctx context.Context, c *call) {
	l.Context, l.call, l.deadline = ctx, c, c.Policy.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		l.deadline = min(l.deadline, deadline.Sub(c.started))
	}
}

// Deadline implements context.Context.
func (l *lifetime) Deadline() (time.Time, bool) { return l.call.started.Add(l.deadline), true }

// Value implements context.Context.
func (l *lifetime) Value(key any) any {
	if key == (callKey{}) {
		return l.call
	}
	return l.Context.Value(key)
}

// Err implements context.Context.
func (l *lifetime) Err() error {
	err, _ := l.over()
	return err
}

// over says whether the call is over, and the cause.
func (l *lifetime) over() (err, cause error) {
	if l.ended.Load() {
		return context.Canceled, context.Canceled
	}
	if err := l.Context.Err(); err != nil {
		return err, context.Cause(l.Context)
	}
	if host := l.call.host.ctx; host.Err() != nil {
		return context.Canceled, context.Cause(host)
	}
	if time.Since(l.call.started) < l.deadline {
		return nil, nil
	}
	if l.deadline < l.call.Policy.Timeout {
		<-l.Context.Done() // its timer may be late when guests keep every core busy
		return l.Context.Err(), context.Cause(l.Context)
	}

	return context.DeadlineExceeded, TimeoutError{l.call.Policy.Timeout}
}

// Done implements context.Context.
func (l *lifetime) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.timed == nil {
		limit := l.call.Policy.Timeout
		ctx, cancelTime := context.WithDeadlineCause(l.Context, l.call.started.Add(limit), TimeoutError{limit})
		ctx, cancel := context.WithCancel(ctx)
		release := context.AfterFunc(l.call.host.ctx, cancel)
		l.timed, l.stop = ctx, func() {
			release()
			cancel()
			cancelTime()
		}
		if l.ended.Load() {
			l.stop()
		}
	}
	return l.timed.Done()
}

// AfterFunc lets contexts that are made of this one follow its end without a goroutine
// each, see [context.WithCancelCause].
func (l *lifetime) AfterFunc(f func()) (stop func() bool) {
	l.Done()
	return context.AfterFunc(l.timed, f) // which does not change once it is there
}

// end gives back what the lifetime holds, and ends it for those who kept it.
func (l *lifetime) end() {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.ended.Store(true)
	if l.stop != nil {
		l.stop()
	}
}
