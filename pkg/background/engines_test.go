package background

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
)

var errDisk = errors.New("disk full")

// A hookEngine is an in-memory engine that calls hooks before and after its methods,
// with the name of the method in lower case. An error of a hook is returned in place of
// the result of the method; after an error of the first hook, the method is not called.
type hookEngine struct {
	*memory.Engine
	before, after func(method string) error
	appended      func(n int)
}

// hooked returns a new in-memory engine with a hook that is called before its methods.
func hooked(before func(method string) error) *hookEngine {
	return &hookEngine{Engine: memory.New(), before: before}
}

// hook calls a method, and the hooks before and after it.
func hook[T any](e *hookEngine, method string, do func() (T, error)) (v T, err error) {
	if e.before != nil {
		if err := e.before(method); err != nil {
			return v, err
		}
	}
	v, err = do()
	if e.after != nil {
		if err := e.after(method); err != nil {
			var none T
			return none, err
		}
	}
	return v, err
}

func run0(e *hookEngine, method string, do func() error) error {
	_, err := hook(e, method, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (e *hookEngine) Join(ctx context.Context, w engine.WorkerInfo) (engine.Worker, error) {
	worker, err := hook(e, "join", func() (engine.Worker, error) { return e.Engine.Join(ctx, w) })
	return &hookWorker{worker, e}, err
}

func (e *hookEngine) Get(ctx context.Context, id string) (engine.Run, error) {
	return hook(e, "get", func() (engine.Run, error) { return e.Engine.Get(ctx, id) })
}

func (e *hookEngine) List(ctx context.Context, q engine.Query) ([]engine.Run, error) {
	return hook(e, "list", func() ([]engine.Run, error) { return e.Engine.List(ctx, q) })
}

func (e *hookEngine) Cancel(ctx context.Context, id string, c engine.Cancellation, end engine.End) (engine.Run, error) {
	return hook(e, "cancel", func() (engine.Run, error) { return e.Engine.Cancel(ctx, id, c, end) })
}

func (e *hookEngine) Tail(ctx context.Context, id string, offset int64, max int) (engine.Chunk, error) {
	return hook(e, "tail", func() (engine.Chunk, error) { return e.Engine.Tail(ctx, id, offset, max) })
}

func (e *hookEngine) Schedules(ctx context.Context, session string, enabled bool) ([]engine.Schedule, error) {
	return hook(e, "schedules", func() ([]engine.Schedule, error) { return e.Engine.Schedules(ctx, session, enabled) })
}

func (e *hookEngine) GetSchedule(ctx context.Context, id string) (engine.Schedule, error) {
	return hook(e, "getschedule", func() (engine.Schedule, error) { return e.Engine.GetSchedule(ctx, id) })
}

type hookWorker struct {
	engine.Worker
	e *hookEngine
}

func (w *hookWorker) Submit(ctx context.Context, run engine.Run, permits *engine.Permits) error {
	return run0(w.e, "submit", func() error { return w.Worker.Submit(ctx, run, permits) })
}

func (w *hookWorker) Adopt(ctx context.Context, run engine.Run, permits engine.Permits) (engine.Lease, error) {
	lease, err := hook(w.e, "adopt", func() (engine.Lease, error) { return w.Worker.Adopt(ctx, run, permits) })
	return &hookLease{lease, w.e}, err
}

func (w *hookWorker) Claim(ctx context.Context, max int, permits engine.Permits) ([]engine.Run, error) {
	return hook(w.e, "claim", func() ([]engine.Run, error) { return w.Worker.Claim(ctx, max, permits) })
}

func (w *hookWorker) Start(ctx context.Context, id string) (engine.Lease, error) {
	lease, err := hook(w.e, "start", func() (engine.Lease, error) { return w.Worker.Start(ctx, id) })
	return &hookLease{lease, w.e}, err
}

func (w *hookWorker) Renew(ctx context.Context, held map[string]engine.Beat) (engine.Renewal, error) {
	return hook(w.e, "renew", func() (engine.Renewal, error) { return w.Worker.Renew(ctx, held) })
}

func (w *hookWorker) Orphans(ctx context.Context, max int) ([]engine.Run, error) {
	return hook(w.e, "orphans", func() ([]engine.Run, error) { return w.Worker.Orphans(ctx, max) })
}

func (w *hookWorker) Requeue(ctx context.Context, id string, attempt int) error {
	return run0(w.e, "requeue", func() error { return w.Worker.Requeue(ctx, id, attempt) })
}

func (w *hookWorker) Abandon(ctx context.Context, id string, attempt int, s engine.Status, b engine.Beat, end engine.End) (engine.Run, error) {
	return hook(w.e, "abandon", func() (engine.Run, error) { return w.Worker.Abandon(ctx, id, attempt, s, b, end) })
}

func (w *hookWorker) Notices(ctx context.Context, max int) ([]engine.Run, error) {
	return hook(w.e, "notices", func() ([]engine.Run, error) { return w.Worker.Notices(ctx, max) })
}

type hookLease struct {
	engine.Lease
	e *hookEngine
}

func (l *hookLease) Append(ctx context.Context, offset int64, p []byte) error {
	if l.e.appended != nil {
		l.e.appended(len(p))
	}
	return run0(l.e, "append", func() error { return l.Lease.Append(ctx, offset, p) })
}

func (l *hookLease) Save(ctx context.Context, checkpoint []byte) error {
	return run0(l.e, "save", func() error { return l.Lease.Save(ctx, checkpoint) })
}

func (l *hookLease) Report(ctx context.Context, b engine.Beat) error {
	return run0(l.e, "report", func() error { return l.Lease.Report(ctx, b) })
}

func (l *hookLease) Complete(ctx context.Context, s engine.Status, b engine.Beat, end engine.End) (engine.Run, error) {
	return hook(l.e, "complete", func() (engine.Run, error) { return l.Lease.Complete(ctx, s, b, end) })
}

func (l *hookLease) Suspend(ctx context.Context, s engine.Suspension) (engine.Run, error) {
	return hook(l.e, "suspend", func() (engine.Run, error) { return l.Lease.Suspend(ctx, s) })
}

// A brokenEngine refuses writes while it is broken, as if the disk were full. The lease
// of the worker needs no writes.
type brokenEngine struct {
	*hookEngine
	broken, brokenLog, brokenStart atomic.Bool
}

func newBroken(base *memory.Engine) *brokenEngine {
	e := &brokenEngine{}
	e.hookEngine = &hookEngine{Engine: base, before: func(method string) error {
		switch method {
		case "submit", "adopt", "cancel", "requeue", "abandon", "report", "complete":
			if e.broken.Load() {
				return errDisk
			}
		case "append":
			if e.brokenLog.Load() {
				return errDisk
			}
		case "start":
			if e.brokenStart.Load() {
				return errDisk
			}
		}
		return nil
	}}
	return e
}

// slowEngine returns an engine that delays the given methods by the given time.
func slowEngine(takes time.Duration, methods ...string) *hookEngine {
	return hooked(func(method string) error {
		for _, m := range methods {
			if m == method {
				time.Sleep(takes)
			}
		}
		return nil
	})
}

// gated returns an engine that holds back the start of runs until open is closed.
func gated(open <-chan struct{}) *hookEngine {
	return hooked(func(method string) error {
		if method == "start" {
			<-open
		}
		return nil
	})
}

// onFirst returns a hook that calls do the first time that a method is called.
func onFirst(method string, do func()) func(string) error {
	var done atomic.Bool
	return func(m string) error {
		if m == method && done.CompareAndSwap(false, true) {
			do()
		}
		return nil
	}
}

// payload returns a run of the engine with its payload.
func payload(t *testing.T, e engine.Engine, id string) engine.Run {
	t.Helper()
	run, err := e.Get(t.Context(), id)
	require.NoError(t, err)
	for part, to := range map[engine.Part]*[]byte{engine.PartArgs: (*[]byte)(&run.Args), engine.PartResult: (*[]byte)(&run.Result), engine.PartContent: (*[]byte)(&run.Content)} {
		*to, err = e.Payload(t.Context(), id, part)
		require.NoError(t, err)
	}
	return run
}

// superseded hands a run of m to another worker, as if the lease of m had ended, and
// starts it there.
func superseded(t *testing.T, m *Manager, id string) engine.Lease {
	t.Helper()
	run, err := m.engine.Get(t.Context(), id)
	require.NoError(t, err)
	m.admission.turn.Lock() // so that m does not claim it itself
	defer m.admission.turn.Unlock()
	require.NoError(t, m.member.worker().Requeue(t.Context(), id, run.Attempt))
	other, err := m.engine.Join(t.Context(), engine.WorkerInfo{TTL: 24 * time.Hour})
	require.NoError(t, err)
	claimed, err := other.Claim(t.Context(), 1, engine.Permits{})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	lease, err := other.Start(t.Context(), id)
	require.NoError(t, err)
	return lease
}

// A clockEngine follows another clock.
type clockEngine struct {
	*memory.Engine
	clock func() time.Time
}

func (e clockEngine) Now(context.Context) (time.Time, error) { return e.clock(), nil }

// ahead returns an engine whose clock is ahead by the given time.
func ahead(base *memory.Engine, by time.Duration) clockEngine {
	return clockEngine{base, func() time.Time { return time.Now().Add(by) }}
}

// result returns the result of a run.
func result(t *testing.T, m *Manager, session, id string) string {
	t.Helper()
	data, err := m.Payload(t.Context(), session, id, engine.PartResult)
	require.NoError(t, err)
	return string(data)
}
