package host

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/host/internal/extism"
	"github.com/toolhost/toolhost/host/internal/wasi"
)

// lifetime is the context of a call. It ends with the caller's context, the
// time limit, or the host. Most calls only check whether they are over, and the
// clock answers that. Only calls that wait for the end need a timer.
type lifetime struct {
	context.Context // the caller's
	host            context.Context
	started         time.Time
	limit           time.Duration
	deadline        time.Duration // time after the start: the limit, or the caller's deadline if that is earlier

	call   any // the *call, for functions that its guest imports
	wasi   *wasi.Call
	extism *extism.Call

	ended atomic.Bool
	mu    sync.Mutex
	timed context.Context // has the timer; nil while nobody waits
	stop  func()          // stops timed
}

// callKey is the context key of the running call, for host functions called by wazero.
type callKey struct{}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// begin starts the lifetime of a call. It ends with end.
func (l *lifetime) begin(ctx, host context.Context, started time.Time, limit time.Duration) {
	l.Context, l.host, l.started, l.limit, l.deadline = ctx, host, started, limit, limit
	if deadline, ok := ctx.Deadline(); ok {
		l.deadline = min(l.deadline, deadline.Sub(started))
	}
}

// Deadline implements context.Context.
func (l *lifetime) Deadline() (time.Time, bool) { return l.started.Add(l.deadline), true }

// Value implements context.Context.
func (l *lifetime) Value(key any) any {
	switch key {
	case callKey{}:
		return l.call
	case wasi.Key{}:
		return l.wasi
	case extism.Key{}:
		return l.extism
	}
	return l.Context.Value(key)
}

// Err implements context.Context.
func (l *lifetime) Err() error {
	err, _ := l.over()
	return err
}

// over returns the error and the cause with which the call ended, or nil if it has not ended.
func (l *lifetime) over() (err, cause error) {
	if l.ended.Load() {
		return context.Canceled, context.Canceled
	}
	if err := l.Context.Err(); err != nil {
		return err, context.Cause(l.Context)
	}
	if l.host.Err() != nil {
		return context.Canceled, context.Cause(l.host)
	}
	if time.Since(l.started) < l.deadline {
		return nil, nil
	}
	if l.deadline < l.limit {
		<-l.Context.Done() // its timer may be late when guests keep all cores busy
		return l.Context.Err(), context.Cause(l.Context)
	}

	return context.DeadlineExceeded, TimeoutError{l.limit}
}

// Done implements context.Context.
func (l *lifetime) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.timed == nil {
		ctx, cancelTime := context.WithDeadlineCause(l.Context, l.started.Add(l.limit), TimeoutError{l.limit})
		ctx, cancel := context.WithCancel(ctx)
		release := context.AfterFunc(l.host, cancel)
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

// AfterFunc lets derived contexts follow this one without a goroutine each; see
// [context.WithCancelCause].
func (l *lifetime) AfterFunc(f func()) (stop func() bool) {
	l.Done()
	return context.AfterFunc(l.timed, f) // timed does not change once it is set
}

// end releases the resources of the lifetime, and cancels it for anyone who kept it.
func (l *lifetime) end() {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.ended.Store(true)
	if l.stop != nil {
		l.stop()
	}
}
