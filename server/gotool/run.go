package gotool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// PanicError means that the handler of a call panicked. It matches host.ErrTrap.
type PanicError struct {
	Value any
	Stack string
}

func (e *PanicError) Error() string { return fmt.Sprintf("the handler panicked: %v", e.Value) }

// Is reports whether the target is host.ErrTrap.
func (e *PanicError) Is(target error) bool { return target == host.ErrTrap }

// callKey is the context key of the call that a handler serves.
type callKey struct{}

// errStopping is the cause of the context of a handler whose run is being stopped.
var errStopping = errors.New("the call is being stopped")

// Call runs the handler, and waits for it until [LeaveTime] after the end of the call.
//
// The Result is always valid. The error is nil if the call succeeded, reported a tool error
// or requires a connection. Otherwise it is a *host.CallError that matches host.ErrTrap,
// host.ErrOutput, host.ErrClosed or a context error.
func (l *Loaded) Call(ctx context.Context, req host.Call) (abi.Result, error) {
	started := time.Now()
	limit := host.TimeLimit(req.Policy.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, limit.Limit, limit)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(l.caller.ctx, func() { end(context.Cause(l.caller.ctx)) })()

	c := &Call{tool: l, req: req, end: end, log: l.caller.log.With("tool", l.Name, "call", req.ID, "session", req.Session)}
	if outer, ok := ctx.Value(callKey{}).(*Call); ok && !req.Background {
		c.depth = outer.depth + 1
	}

	a := c.run(ctx)
	r, err := c.outcome(ctx, a)
	c.finish(&r)
	r.Usage.Wall = time.Since(started)
	if err != nil {
		call := &host.CallError{Tool: l.Name, Err: err}
		if p, ok := errors.AsType[*PanicError](err); ok {
			call.Trace = p.Stack
		}
		err = call
	}
	return r, err
}

// finish closes the call, and adds to its result what it reported about itself.
func (c *Call) finish(r *abi.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	r.Usage = c.inner
	r.Usage.Wait, r.Usage.OutputBytes = c.waited, c.written
	if r.Kind == abi.Success || r.Kind == abi.ToolError {
		r.Summary = c.summary
	}
}

// answer is the return value of a handler.
type answer struct {
	value json.RawMessage
	err   error
	late  bool // the handler has not returned
}

// run runs the handler on its own goroutine, so that nobody has to wait for one that does
// not return.
func (c *Call) run(ctx context.Context) answer {
	switch refused := c.tool.Refused(); {
	case refused != nil:
		return answer{err: refused}
	case c.depth > maxDepth:
		return answer{err: fmt.Errorf("at most %d tools can call each other in turn", maxDepth)}
	}
	began := time.Now()
	release, err := c.acquire(ctx, &c.req)
	c.waited = time.Since(began)
	if err != nil {
		return answer{err: err}
	}
	if !c.tool.caller.enter(c) {
		release()
		return answer{err: &brokenError{host.ErrClosed}}
	}

	stopping, stopped := context.WithCancelCause(context.WithValue(ctx, callKey{}, c))
	done, watched := make(chan answer, 1), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-c.req.Stopping:
			stopped(errStopping)
		case <-stopping.Done():
		}
	}()
	go func() {
		defer c.tool.caller.leave(c)
		defer release()
		c.handle(stopping, done)
	}()
	defer func() {
		stopped(nil)
		<-watched
	}()

	select {
	case a := <-done:
		return a
	case <-ctx.Done():
	}
	return c.await(done)
}

// await waits for a handler whose context is done, and reports one that does not return.
func (c *Call) await(done <-chan answer) answer {
	late := time.NewTimer(LeaveTime)
	defer late.Stop()
	select {
	case a := <-done:
		return a
	case <-late.C:
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.returned {
		return <-done
	}
	c.late = true
	c.tool.stuck.add(1)
	c.log.Warn("the handler ignores its context: it still runs, and the call keeps its slot until it returns", "waited", LeaveTime)
	return answer{late: true}
}

// handle calls the handler, and sends what it returns. A panic is an error.
func (c *Call) handle(ctx context.Context, done chan<- answer) {
	a := answer{err: errors.New("runtime.Goexit was called")}
	exited := true
	defer func() {
		if value := recover(); value != nil || exited {
			stack := make([]byte, 16<<10)
			stack = stack[:runtime.Stack(stack, false)]
			a = answer{err: &PanicError{cmp.Or(value, any(a.err)), string(stack)}}
		}
		c.returns()
		done <- a
	}()
	a.value, a.err = c.tool.handler.run(ctx, c, c.args())
	exited = false
}

// returns records that the handler has returned.
func (c *Call) returns() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.returned = true
	if c.late {
		c.tool.stuck.add(-1)
		c.log.Info("the handler that ignored its context has returned")
	}
}

func (c *Call) args() json.RawMessage {
	if len(c.req.Args) == 0 {
		return json.RawMessage("{}")
	}
	return c.req.Args
}

// outcome turns what the handler returned into the result of the call. An internal cause
// is logged, and the model sees one sentence.
func (c *Call) outcome(ctx context.Context, a answer) (abi.Result, error) {
	c.mu.Lock()
	if a.err == nil && !a.late && c.failed == nil {
		a.err = c.count(len(a.value)) // this may be the failure
	}
	failed, content := c.failed, c.content
	c.mu.Unlock()

	panicked, _ := errors.AsType[*PanicError](a.err)
	broken, _ := errors.AsType[*brokenError](a.err)
	connection, _ := errors.AsType[*connectionError](a.err)
	waited, _ := errors.AsType[*host.WaitedError](a.err)
	switch {
	case panicked != nil:
		c.log.Error("the handler panicked", "error", panicked.Value, "stack", panicked.Stack)
		return abi.Result{Kind: abi.Internal, Error: abi.InternalMessage}, panicked
	case failed != nil:
		return abi.Result{Kind: abi.LimitReached, Limit: abi.LimitOutput, Error: failed.Error()}, failed
	case broken != nil:
		c.log.Error("the handler broke", "error", broken.error)
		return abi.Result{Kind: abi.Internal, Error: abi.InternalMessage}, broken.error
	case a.err == nil && !a.late:
		return abi.Result{Kind: abi.Success, Value: a.value, Content: content}, nil
	case waited != nil:
		return ended(waited)
	case ctx.Err() != nil:
		return ended(over(ctx))
	case connection != nil && connection.Provider != "":
		return abi.Result{Kind: abi.ConnectionRequired, Connection: &connection.Connection, Error: connection.Error(), Content: content}, nil
	}
	return abi.Result{Kind: abi.ToolError, Error: cmp.Or(clip(a.err.Error(), maxError), "the tool reported an error without a message"), Content: content}, nil
}

// ended returns the result of a call that was ended early.
func ended(err error) (abi.Result, error) {
	if errors.Is(err, context.DeadlineExceeded) {
		return abi.Result{Kind: abi.LimitReached, Limit: abi.LimitTime, Error: err.Error()}, err
	}
	return abi.Result{Kind: abi.CanceledKind, Error: err.Error()}, err
}

// over returns why a context is done: an error with the text of the cause, which matches the
// cause and the context's error.
func over(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return &causeError{err, cause}
}

type causeError struct{ err, cause error }

func (e *causeError) Error() string   { return e.cause.Error() }
func (e *causeError) Unwrap() []error { return []error{e.cause, e.err} }
