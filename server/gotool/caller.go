package gotool

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/fair"
)

// LeaveTime is how long a handler may take to return once its context is done.
const LeaveTime = 2 * time.Second

// maxStuck is the number of handlers of one tool that may still be running after LeaveTime.
// At the limit, further calls are refused.
const maxStuck = 16

// Config configures a [Caller].
type Config struct {
	// Calls is the maximum number of concurrent calls. Background runs and calls that other
	// tools make do not count. Further calls wait, and their time limit keeps running. 0
	// means host.DefaultTotalCalls.
	Calls int
	// Shared limits one client to three quarters of Calls, as host.Config.Shared does.
	Shared bool
	// Logger gets messages for operators. Nil discards them.
	Logger *slog.Logger
}

// Caller calls the tools of one program. It is safe for concurrent use.
type Caller struct {
	log   *slog.Logger
	max   int
	slots *fair.Semaphore // slots for direct calls

	ctx    context.Context // done when calls must end
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	closed  bool
	calls   sync.WaitGroup // handlers that have not returned
	running map[*Call]bool
}

// NewCaller returns a Caller. Close it when done.
func NewCaller(cfg Config) *Caller {
	c := &Caller{log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), max: cmp.Or(max(cfg.Calls, 0), host.DefaultTotalCalls), running: map[*Call]bool{}}
	c.slots = fair.NewSemaphore(c.max, cfg.Shared)
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

// Close refuses new calls, and waits for active ones until ctx is done. Then it cancels
// them. The error names the handlers that have not returned [LeaveTime] later; Close does
// not wait for these.
func (c *Caller) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()

	ended := make(chan struct{})
	go func() {
		c.calls.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}

	c.cancel(host.ErrClosed)
	select {
	case <-ended:
		return nil
	case <-time.After(LeaveTime):
	}

	if left := c.Running(); len(left) > 0 {
		return fmt.Errorf("handlers of tools ignore their context and still run: %s", strings.Join(left, ", "))
	}
	return nil
}

// Running returns the names of the tools whose handlers are running.
func (c *Caller) Running() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for call := range c.running {
		names = append(names, call.tool.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// enter counts a handler that is about to run. It returns false once the caller is closed.
func (c *Caller) enter(call *Call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.calls.Add(1)
	c.running[call] = true
	return true
}

// leave counts a handler that has returned.
func (c *Caller) leave(call *Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, call)
	c.calls.Done()
}

// acquire waits for the slots of a call: the slot of its session if its tool is serial,
// and a slot for direct calls. A nested call uses its caller's slot, because calls that
// wait for each other could otherwise hold all slots. It does not wait for the slot of
// its session, which might wait for it. release returns the slots.
func (c *Call) acquire(ctx context.Context, req *host.Call) (release func(), err error) {
	release = func() {}
	if s := c.tool.serial; s != nil {
		const why = "the tool runs one call of a session at a time, and another one is running: retry when that has ended"
		if req.Caller != nil && !s.TryAcquire(req.Session) {
			return nil, &host.BusyError{Why: why}
		}
		if req.Caller == nil {
			if _, err := s.Acquire(ctx, req.Session); err != nil {
				return nil, &host.WaitedError{Err: over(ctx), For: why}
			}
		}
		release = func() { s.Release(req.Session) }
	}
	if req.Background || c.depth > 0 || req.Caller != nil {
		return release, nil
	}

	slots, client := c.tool.caller.slots, fair.ClientOf(req.Session)
	if _, err := slots.Acquire(ctx, client); err != nil {
		release()
		return nil, &host.WaitedError{Err: over(ctx), For: fmt.Sprintf(
			"at most %d calls of the program's own tools run at a time: retry when others have ended, or ask the operator to raise the limit", c.tool.caller.max)}
	}

	detach := sync.OnceFunc(func() { slots.Release(client) })
	if req.Admitted != nil {
		req.Admitted(detach)
	}
	serial := release
	return func() {
		detach()
		serial()
	}, nil
}

// stuck counts the calls to a tool whose handlers ignore their context.
type stuck struct {
	mu sync.Mutex
	n  int
}

func (s *stuck) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n += n
}

func (s *stuck) refusal(tool string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n < maxStuck {
		return nil
	}
	return fmt.Errorf("%s is not available: %d of its calls do not end although they were canceled, which is a bug of the program that provides it", tool, s.n)
}
