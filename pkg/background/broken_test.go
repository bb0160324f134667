package background

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/testlog"
)

var errDisk = errors.New("disk full")

func TestRunsThatEndedWithoutTheirEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &brokenEngine{MemoryEngine: NewMemoryEngine()}
		m := newManager(t, Config{Engine: engine, PerSession: 1, Logger: logTo(new(testlog.Buffer))})
		engine.broken.Store(true)
		_, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "echo"})
		require.ErrorIs(t, err, errDisk)
		require.Zero(t, m.limits.host, "no record, no permit")
		engine.broken.Store(false)

		id := spawned(t, m, alice, "second")
		engine.broken.Store(true)
		run := wait(t, m, alice, id)
		require.Equal(t, StatusSucceeded, run.Status, "who waits is told the truth")
		require.Equal(t, StatusRunning, must(engine.Get(t.Context(), id)).Status)
		require.Equal(t, 1, must(m.List(t.Context(), alice, ListRequest{})).Finished)
		require.True(t, must(m.Stop(t.Context(), alice, id, StopRequest{})).AlreadyFinished)
		time.Sleep(time.Minute)
		engine.broken.Store(false)
		time.Sleep(HeartbeatEvery)
		synctest.Wait()
		stored := must(engine.Get(t.Context(), id))
		require.Equal(t, StatusSucceeded, stored.Status, "it is stored as soon as that works")
		require.JSONEq(t, `"slept"`, string(stored.Result))
		require.True(t, stored.FinishedAt.Equal(run.FinishedAt))
		require.Equal(t, 1, stored.Attempt)
		require.Empty(t, m.allTasks())
	})
}

func TestOutputThatCannotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &brokenEngine{MemoryEngine: NewMemoryEngine()}
		m := newManager(t, Config{Engine: engine, Logger: logTo(new(testlog.Buffer))})
		engine.brokenLog.Store(true)
		run := wait(t, m, alice, spawn(t, m, alice, "echo").ID)
		require.Equal(t, StatusSucceeded, run.Status)
		require.Equal(t, textUnstored, run.ArtifactError)
	})
}

func TestClaimThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testlog.Buffer
		engine := &brokenEngine{MemoryEngine: NewMemoryEngine()}
		m := newManager(t, Config{Engine: engine, Logger: logTo(&log)})
		engine.brokenClaim.Store(true)
		id := spawned(t, m, alice, "echo")
		time.Sleep(time.Hour)
		require.Equal(t, StatusQueued, status(t, m, alice, id), "it was acknowledged: it is not given up")
		require.Equal(t, 1, strings.Count(log.String(), "could not be claimed"), "it is said once")
		engine.brokenClaim.Store(false)
		time.Sleep(claimLate)
		synctest.Wait()
		run := must(engine.Get(t.Context(), id))
		require.Equal(t, StatusSucceeded, run.Status)
		require.Equal(t, 1, run.Attempt)
		require.Zero(t, m.limits.host)
	})
}

func TestStopOfARunThatCannotBeClaimed(t *testing.T) {
	for name, broken := range map[string]bool{"and its stop cannot be stored": true, "and its stop can be": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := &brokenEngine{MemoryEngine: NewMemoryEngine()}
				m := newManager(t, Config{Engine: engine, Logger: logTo(new(testlog.Buffer))})
				engine.brokenClaim.Store(true)
				id := spawned(t, m, alice, "echo")
				time.Sleep(time.Minute)
				engine.broken.Store(broken)
				stopped := must(m.Stop(t.Context(), alice, id, StopRequest{}))
				require.True(t, stopped.Stopped)
				require.Equal(t, broken, stopped.Unsaved)
				engine.broken.Store(false)
				time.Sleep(HeartbeatEvery)
				synctest.Wait()
				run := must(engine.Get(t.Context(), id))
				require.Equal(t, StatusCanceled, run.Status)
				require.Zero(t, run.Attempt, "it never started")
				require.Zero(t, m.limits.host)
			})
		})
	}
}

func TestCloseLeavesARunThatCannotBeClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &brokenEngine{MemoryEngine: NewMemoryEngine()}
		m, err := New(t.Context(), Config{Engine: engine, Executor: script, Logger: logTo(new(testlog.Buffer))})
		require.NoError(t, err)
		engine.brokenClaim.Store(true)
		id := spawned(t, m, alice, "echo")
		time.Sleep(time.Minute)
		began := time.Now()
		require.NoError(t, m.Close(t.Context()))
		require.LessOrEqual(t, time.Since(began), claimLate)
		require.Equal(t, StatusQueued, must(engine.Get(t.Context(), id)).Status, "for the next start")
	})
}

// Each answer about an end that is not stored says so, until it is.
func TestUnsavedEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &brokenEngine{MemoryEngine: NewMemoryEngine()}
		m := newManager(t, Config{Engine: engine, Logger: logTo(new(testlog.Buffer))})
		id := spawned(t, m, alice, "second")
		engine.broken.Store(true)

		began := time.Now()
		report := check(t, m, alice, CheckRequest{IDs: []string{id}, Wait: time.Minute})
		require.Equal(t, time.Second, time.Since(began), "the end is told when it comes")
		require.Equal(t, StatusSucceeded, report.Status)
		require.JSONEq(t, `"slept"`, string(report.Result))
		require.True(t, report.Unsaved)
		require.False(t, report.Done)
		require.Equal(t, nextUnsaved, report.Next)
		run := wait(t, m, alice, id)
		require.True(t, run.Unsaved)
		require.False(t, run.Final())
		stopped := must(m.Stop(t.Context(), alice, id, StopRequest{}))
		require.True(t, stopped.AlreadyFinished && stopped.Unsaved)
		require.Equal(t, nextUnsaved, stopped.Next)
		require.True(t, must(m.List(t.Context(), alice, ListRequest{})).Tasks[0].Unsaved)
		require.True(t, must(m.Runs(t.Context(), alice, Query{}))[0].Unsaved)

		time.AfterFunc(10*time.Second, func() { engine.broken.Store(false) })
		began = time.Now()
		report = check(t, m, alice, CheckRequest{IDs: []string{id}, Wait: time.Minute})
		require.InDelta(t, 10*time.Second, time.Since(began), float64(HeartbeatEvery), "who asks again waits for what is new")
		require.True(t, report.Done)
		require.False(t, report.Unsaved)
		require.Empty(t, report.Next)
		require.False(t, must(m.Stop(t.Context(), alice, id, StopRequest{})).Unsaved)
		require.False(t, must(m.List(t.Context(), alice, ListRequest{})).Tasks[0].Unsaved)
		require.True(t, must(m.Get(t.Context(), alice, id)).Final())
	})
}

// A brokenEngine refuses writes while it is broken.
type brokenEngine struct {
	*MemoryEngine
	broken, brokenLog, brokenClaim atomic.Bool
}

func (e *brokenEngine) Submit(ctx context.Context, run Run) error {
	if e.broken.Load() {
		return errDisk
	}
	return e.MemoryEngine.Submit(ctx, run)
}

func (e *brokenEngine) Cancel(ctx context.Context, id string, c Cancellation) (Run, error) {
	if e.broken.Load() {
		return Run{}, errDisk
	}
	return e.MemoryEngine.Cancel(ctx, id, c)
}

func (e *brokenEngine) Adopt(ctx context.Context, run Run) (Lease, error) {
	if e.broken.Load() {
		return nil, errDisk
	}
	lease, err := e.MemoryEngine.Adopt(ctx, run)
	return &brokenLease{lease, e}, err
}

func (e *brokenEngine) Requeue(ctx context.Context, id string, attempt int) error {
	if e.broken.Load() {
		return errDisk
	}
	return e.MemoryEngine.Requeue(ctx, id, attempt)
}

func (e *brokenEngine) Abandon(ctx context.Context, id string, attempt int, s Status, b Beat, end End) (Run, error) {
	if e.broken.Load() {
		return Run{}, errDisk
	}
	return e.MemoryEngine.Abandon(ctx, id, attempt, s, b, end)
}

func (e *brokenEngine) Claim(ctx context.Context, id string) (Lease, error) {
	if e.brokenClaim.Load() {
		return nil, errDisk
	}
	lease, err := e.MemoryEngine.Claim(ctx, id)
	return &brokenLease{lease, e}, err
}

type brokenLease struct {
	Lease
	engine *brokenEngine
}

func (l *brokenLease) Append(ctx context.Context, offset int64, p []byte) error {
	if l.engine.brokenLog.Load() {
		return errDisk
	}
	return l.Lease.Append(ctx, offset, p)
}

func (l *brokenLease) Extend(ctx context.Context, b Beat) (*Cancellation, error) {
	if l.engine.broken.Load() {
		return nil, errDisk
	}
	return l.Lease.Extend(ctx, b)
}

func (l *brokenLease) Complete(ctx context.Context, s Status, b Beat, e End) (Run, error) {
	if l.engine.broken.Load() {
		return Run{}, errDisk
	}
	return l.Lease.Complete(ctx, s, b, e)
}

// A stop that could not be stored in time keeps the work from starting.
func TestStopBeforeTheStartWithoutItsEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &brokenEngine{MemoryEngine: NewMemoryEngine()}
		gate := &gateEngine{Engine: engine, open: make(chan struct{})}
		var ran atomic.Bool
		m := newManager(t, Config{Engine: gate, Logger: logTo(new(testlog.Buffer)), Executor: func(context.Context, Run, *Sink) (Outcome, error) {
			ran.Store(true)
			return Outcome{}, nil
		}})
		id := spawned(t, m, alice, "tool")
		engine.broken.Store(true)
		time.AfterFunc(time.Second, func() {
			engine.broken.Store(false)
			close(gate.open)
		})
		stopped, err := m.Stop(t.Context(), alice, id, StopRequest{})
		require.NoError(t, err)
		require.True(t, stopped.Stopped)
		require.False(t, ran.Load())
	})
}

// An impatientEngine loses its caller in the middle of a submit, and fails to
// list notices the first time.
type impatientEngine struct {
	*MemoryEngine
	leave  func()
	failed atomic.Bool
}

func (e *impatientEngine) Submit(ctx context.Context, run Run) error {
	if e.leave != nil {
		e.leave()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return e.MemoryEngine.Submit(ctx, run)
}

func (e *impatientEngine) List(ctx context.Context, q Query) ([]Run, error) {
	if q.Notice && q.Session == "" && e.failed.CompareAndSwap(false, true) {
		return nil, errDisk
	}
	return e.MemoryEngine.List(ctx, q)
}

func TestCallerLeavesDuringASpawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &impatientEngine{MemoryEngine: NewMemoryEngine()}
		m := newManager(t, Config{Engine: engine})
		ctx, cancel := context.WithCancel(t.Context())
		engine.leave = cancel
		s, err := m.Spawn(ctx, alice, SpawnRequest{Tool: "echo"})
		require.NoError(t, err, "what is begun is brought to its end")
		require.Equal(t, StatusSucceeded, wait(t, m, alice, s.ID).Status)
	})
}

func TestEarlierNoticesReadLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPast(t)
		earlier := p.queued(Run{Tool: "echo"})
		_, err := p.engine.Cancel(t.Context(), earlier, Cancellation{At: time.Now()})
		require.NoError(t, err)
		time.Sleep(time.Second)
		var box mailbox
		m := newManager(t, Config{Engine: &impatientEngine{MemoryEngine: p.engine}, OnNotice: box.put, Logger: logTo(new(testlog.Buffer))})
		now := spawned(t, m, alice, "echo")
		require.Empty(t, box.ids())
		time.Sleep(HeartbeatEvery)
		synctest.Wait()
		require.Equal(t, []string{earlier, now}, box.ids(), "each once, in order")
	})
}
