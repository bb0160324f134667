package background

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// A past is the engine of a process that is going to be killed.
type past struct {
	t      *testing.T
	engine *memory.Engine
	worker engine.Worker
}

func newPast(t *testing.T) past {
	p := past{t: t, engine: memory.New()}
	var err error
	p.worker, err = p.engine.Join(t.Context(), engine.WorkerInfo{})
	require.NoError(t, err)
	return p
}

// crashed kills the process and returns its engine.
func (p past) crashed() *memory.Engine {
	p.t.Helper()
	require.NoError(p.t, p.worker.Leave(p.t.Context()))
	return p.engine
}

// queued leaves behind a run that was never started.
func (p past) queued(run engine.Run) string {
	p.t.Helper()
	id := newID(runPrefix)
	run.ID, run.Session, run.Timeout, run.OutputCap, run.SignalOnCompletion = id, alice, time.Hour, 1000, true
	if run.Args == nil {
		run.Args = []byte(`{"n":1}`)
	}
	require.NoError(p.t, p.worker.Submit(p.t.Context(), run, nil))
	return id
}

// running leaves behind a run in the middle of an attempt.
func (p past) running(run engine.Run, attempt int) string {
	p.t.Helper()
	id := p.queued(run)
	for range attempt {
		p.claim(id)
		lease, err := p.worker.Start(p.t.Context(), id)
		require.NoError(p.t, err)
		require.NoError(p.t, lease.Append(p.t.Context(), 0, []byte("half of the output\n")))
		require.NoError(p.t, lease.Save(p.t.Context(), []byte("step 7")))
		require.NoError(p.t, lease.Report(p.t.Context(), engine.Beat{Detail: "working"}))
		if lease.Run().Attempt < attempt {
			p.requeue(id, lease.Run().Attempt)
		}
	}
	return id
}

// claim claims the given run, and no other.
func (p past) claim(id string) {
	p.t.Helper()
	claimed, err := p.worker.Claim(p.t.Context(), 1000, engine.Permits{})
	require.NoError(p.t, err)
	for _, run := range claimed {
		if run.ID != id {
			p.requeue(run.ID, run.Attempt)
		}
	}
}

func (p past) requeue(id string, attempt int) {
	p.t.Helper()
	require.NoError(p.t, p.worker.Requeue(p.t.Context(), id, attempt))
}

func yes(context.Context, engine.Run) error { return nil }

func TestRecovery(t *testing.T) {
	no := errors.New("tool is neither idempotent nor readonly")
	incident := func(p past, id string) {
		_, err := p.engine.Cancel(p.t.Context(), id, engine.Cancellation{By: "session", Reason: "before the crash"}, engine.End{})
		require.NoError(p.t, err)
	}
	for name, c := range map[string]struct {
		run     engine.Run
		attempt int // 0: queued
		then    func(past, string)
		readmit func(context.Context, engine.Run) error
		status  engine.Status
		want    engine.RunError
		ends    int // the attempt it ends in
	}{
		"queued":                        {readmit: yes, status: engine.StatusSucceeded, ends: 1},
		"queued, nobody to ask":         {status: engine.StatusSucceeded, ends: 1},
		"queued, not allowed any more":  {readmit: func(context.Context, engine.Run) error { return no }, status: engine.StatusFailed, want: engine.RunError{Kind: engine.KindRejected, Message: errRejected.Message}},
		"queued, arguments were secret": {run: engine.Run{Secret: true}, readmit: yes, status: engine.StatusFailed, want: engine.RunError{Kind: engine.KindOrphaned, Message: errIncomplete.Message}},
		"running, may be run again":     {attempt: 1, readmit: yes, status: engine.StatusSucceeded, ends: 2},
		"running, for the second time":  {attempt: 2, readmit: yes, status: engine.StatusSucceeded, ends: 3},
		"running, out of attempts":      {attempt: 4, readmit: yes, status: engine.StatusFailed, want: engine.RunError{Kind: engine.KindOrphaned, Message: "The host went down during each of 3 attempts to run it, and there are no more"}, ends: 4}, // the first has saved its checkpoint
		"running, nobody to ask":        {attempt: 1, status: engine.StatusFailed, want: engine.RunError{Kind: engine.KindOrphaned, Message: errOrphaned.Message}, ends: 1},
		"running, may not be run again": {attempt: 1, readmit: func(context.Context, engine.Run) error { return no }, status: engine.StatusFailed, want: engine.RunError{Kind: engine.KindOrphaned, Message: errOrphaned.Message}, ends: 1},
		"running, Readmit panics":       {attempt: 1, readmit: func(context.Context, engine.Run) error { panic(no) }, status: engine.StatusFailed, want: engine.RunError{Kind: engine.KindOrphaned, Message: errOrphaned.Message}, ends: 1},
		"running, with a reason": {attempt: 1, readmit: func(context.Context, engine.Run) error {
			return &Error{Kind: engine.KindOrphaned, Message: "the tool changed"}
		}, status: engine.StatusFailed, want: engine.RunError{Kind: engine.KindOrphaned, Message: "the tool changed"}, ends: 1},
		"running, arguments were secret":    {run: engine.Run{Secret: true}, attempt: 1, readmit: yes, status: engine.StatusFailed, want: engine.RunError{Kind: engine.KindOrphaned, Message: errOrphaned.Message}, ends: 1},
		"running, a stop was asked for":     {attempt: 1, then: incident, readmit: yes, status: engine.StatusCanceled, ends: 1},
		"queued again before the crash":     {attempt: 1, then: func(p past, id string) { p.requeue(id, 1) }, readmit: yes, status: engine.StatusSucceeded, ends: 2},
		"queued again, not allowed anymore": {attempt: 1, then: func(p past, id string) { p.requeue(id, 1) }, status: engine.StatusFailed, want: engine.RunError{Kind: engine.KindOrphaned, Message: errOrphaned.Message}, ends: 1},
		"a parked call, may be run again":   {run: engine.Run{Origin: engine.OriginParked}, attempt: 1, readmit: yes, status: engine.StatusSucceeded, ends: 2},
	} {
		bubble(t, name, func(t *testing.T) {
			p := newPast(t)
			c.run.Tool = "echo"
			var id string
			if c.attempt == 0 {
				id = p.queued(c.run)
			} else {
				id = p.running(c.run, c.attempt)
			}
			if c.then != nil {
				c.then(p, id)
			}
			m := newManager(t, Config{Engine: p.crashed(), Readmit: c.readmit, Logger: logTo(new(testlog.Buffer))})
			run := wait(t, m, alice, id)
			require.Equal(t, c.status, run.Status)
			require.Equal(t, c.ends, run.Attempt)
			log := must(m.Tail(t.Context(), alice, id, 0, 1000))
			switch {
			case c.status == engine.StatusSucceeded:
				require.JSONEq(t, `{"n":1}`, string(run.Result))
				require.Equal(t, "echo {\"n\":1}\n", string(log.Data), "the log is that of the attempt")
			case c.attempt > 0:
				require.Equal(t, "half of the output\n", string(log.Data), "the output is kept")
				require.EqualValues(t, len(log.Data), run.OutputBytes)
				require.Equal(t, "working", run.Detail)
			}
			if c.status == engine.StatusFailed {
				require.Equal(t, c.want, *run.Error)
			}
			require.Len(t, pendingOf(t, m, alice, 0), 1, "its end is told")
		})
	}
}

// A session that wants no notice of a run gets none after a crash either.
func TestRecoveryOfSilentRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPast(t)
		run := engine.Run{Session: alice, Tool: "echo", Args: []byte(`{}`), Timeout: time.Hour, OutputCap: 1000}
		for _, run.ID = range []string{"bg_queued", "bg_again", "bg_lost"} {
			require.NoError(t, p.worker.Submit(t.Context(), run, nil))
			if run.ID != "bg_queued" {
				p.claim(run.ID)
				must(p.worker.Start(t.Context(), run.ID))
			}
		}
		var box mailbox
		m := newManager(t, Config{Engine: p.crashed(), OnNotice: box.put, Logger: logTo(new(testlog.Buffer)), Readmit: func(_ context.Context, run engine.Run) error {
			if run.ID == "bg_lost" {
				return errors.New("neither idempotent nor readonly")
			}
			return nil
		}})
		synctest.Wait()
		require.Equal(t, engine.StatusSucceeded, status(t, m, alice, "bg_queued"))
		require.Equal(t, engine.StatusSucceeded, status(t, m, alice, "bg_again"))
		require.Equal(t, engine.StatusFailed, status(t, m, alice, "bg_lost"))
		require.Empty(t, box.ids())
		require.Empty(t, pendingOf(t, m, alice, 0))
	})
}

func TestRecoveryHandsOverTheCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPast(t)
		id := p.running(engine.Run{Tool: "count"}, 1)
		var restored []byte
		var detail string
		m := newManager(t, Config{Engine: p.crashed(), Readmit: yes, Executor: func(_ context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
			restored, detail = sink.Restore(), sink.Beat().Detail
			require.Equal(t, 2, run.Attempt)
			require.JSONEq(t, `{"n":1}`, string(run.Args))
			return Outcome{}, nil
		}})
		wait(t, m, alice, id)
		require.Equal(t, "step 7", string(restored))
		require.Equal(t, "running again, attempt 2", detail)
		require.EqualValues(t, 1, m.Stats().Rerun)
	})
}

func TestRecoveryKeepsTheOrderAndTheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPast(t)
		var ids []string
		for i := range 7 {
			if i%2 == 0 {
				ids = append(ids, p.running(engine.Run{Tool: "second"}, 1))
			} else {
				ids = append(ids, p.queued(engine.Run{Tool: "second"}))
			}
		}
		var mu sync.Mutex
		var order []string
		m := newManager(t, Config{Engine: p.crashed(), PerSession: 1, Readmit: yes, Executor: func(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
			mu.Lock()
			order = append(order, run.ID)
			mu.Unlock()
			return script(ctx, run, sink)
		}})
		synctest.Wait()
		require.Equal(t, engine.StatusQueued, status(t, m, alice, ids[6]), "no permit defers a run, it does not fail it")
		_, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "echo"})
		require.ErrorIs(t, err, engine.ErrSessionLimit)
		began := time.Now()
		runs, err := awaited(t.Context(), m, alice, ids, UntilAll)
		require.NoError(t, err)
		require.Equal(t, 7*time.Second, time.Since(began))
		for _, run := range runs {
			require.Equal(t, engine.StatusSucceeded, run.Status)
		}
		require.Equal(t, ids, order)
	})
}

func TestRecoveryOfASchedulesRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPast(t)
		for _, id := range []string{"sc_a", "sc_b"} {
			_, err := p.engine.PutSchedule(t.Context(), engine.Schedule{ID: id, Session: alice}, 1)
			require.NoError(t, err)
		}
		first := p.running(engine.Run{Tool: "second", Schedule: "sc_a", Origin: engine.OriginScheduled}, 1)
		second := p.queued(engine.Run{Tool: "second", Schedule: "sc_a", Origin: engine.OriginScheduled, After: first})
		other := p.queued(engine.Run{Tool: "echo", Schedule: "sc_b", Origin: engine.OriginScheduled})
		m := newManager(t, Config{Engine: p.crashed(), Readmit: yes})
		synctest.Wait()
		require.Equal(t, engine.StatusRunning, status(t, m, alice, first))
		require.Equal(t, engine.StatusQueued, status(t, m, alice, second), "never two of one schedule at once")
		require.Equal(t, engine.StatusSucceeded, status(t, m, alice, other))
		require.Equal(t, engine.StatusSucceeded, wait(t, m, alice, second).Status)
	})
}

func TestRecoveryWithABrokenEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPast(t)
		again, lost := p.running(engine.Run{Tool: "echo"}, 1), p.running(engine.Run{Tool: "other"}, 1)
		store := newBroken(p.crashed())
		store.broken.Store(true)
		m := newManager(t, Config{Engine: store, Logger: logTo(new(testlog.Buffer)), Readmit: func(_ context.Context, run engine.Run) error {
			if run.Tool == "other" {
				return errors.New("no")
			}
			return nil
		}})
		time.Sleep(time.Minute)
		require.Equal(t, engine.StatusRunning, must(p.engine.Get(t.Context(), again)).Status)
		require.Equal(t, engine.StatusRunning, must(p.engine.Get(t.Context(), lost)).Status)
		store.broken.Store(false)
		require.Equal(t, engine.StatusSucceeded, wait(t, m, alice, again).Status, "as soon as the engine works")
		time.Sleep(time.Minute) // its last try may have been right before that
		require.Equal(t, engine.KindOrphaned, must(p.engine.Get(t.Context(), lost)).Error.Kind)
	})
}

func TestCloseDuringABrokenRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPast(t)
		id := p.running(engine.Run{Tool: "echo"}, 1)
		store := newBroken(p.crashed())
		store.broken.Store(true)
		m, err := New(t.Context(), Config{Engine: store, Executor: script, Readmit: yes, Logger: logTo(new(testlog.Buffer))})
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, m.Close(t.Context()))
		require.Zero(t, time.Since(began))
		require.Equal(t, engine.StatusRunning, must(p.engine.Get(t.Context(), id)).Status, "it is left to the next start")
	})
}

func TestNewWithoutItsEngine(t *testing.T) {
	_, err := New(t.Context(), Config{Executor: script, Engine: hooked(func(method string) error {
		if method == "orphans" {
			return errDisk
		}
		return nil
	})})
	require.ErrorIs(t, err, errDisk)
}

// A process is killed again and again. A tool that must not be run again is executed
// once, a tool that may be is executed no more often than the attempts allow, and no
// run stays active.
func TestRecoveryAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPast(t)
		ids := map[string]string{}
		for _, tool := range []string{"once", "again"} {
			ids[tool] = p.queued(engine.Run{Tool: tool})
		}
		executed := map[string]int{}
		var mu sync.Mutex
		for range 5 {
			crashed := make(chan struct{})
			var dead atomic.Bool
			process := &hookEngine{Engine: p.crashed(), before: func(string) error {
				if dead.Load() {
					return errDisk
				}
				return nil
			}}
			m, err := New(t.Context(), Config{Engine: process, Logger: logTo(new(testlog.Buffer)),
				Readmit: func(_ context.Context, run engine.Run) error {
					if run.Attempt > 0 && run.Tool == "once" {
						return errors.New("not idempotent")
					}
					return nil
				},
				Executor: func(_ context.Context, run engine.Run, _ *output.Sink) (Outcome, error) {
					mu.Lock()
					executed[run.Tool]++
					mu.Unlock()
					<-crashed
					return Outcome{}, fmt.Errorf("too late")
				}})
			require.NoError(t, err)
			synctest.Wait()
			// The next manager takes over the runs; this one is fenced.
			dead.Store(true)
			time.Sleep(engine.DefaultTTL)
			t.Cleanup(func() {
				dead.Store(false)
				close(crashed)
				synctest.Wait()
				require.NoError(t, m.Close(context.Background()))
			})
		}
		require.Equal(t, map[string]int{"once": 1, "again": 3}, executed)
		for _, id := range ids {
			require.Equal(t, engine.KindOrphaned, must(p.engine.Get(t.Context(), id)).Error.Kind)
		}
	})
}

// Runs are executed and end while New is still taking over others.
func TestRecoveryOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPast(t)
		for i := range 500 {
			if i%2 == 0 {
				p.queued(engine.Run{Tool: "echo"})
			} else {
				p.running(engine.Run{Tool: "echo"}, 1)
			}
		}
		m := newManager(t, Config{Engine: p.crashed(), Readmit: yes, PerSession: 1000, PerHost: 1000})
		synctest.Wait()
		require.Equal(t, 500, len(ended(t, m, alice)))
		stats := m.Stats()
		require.EqualValues(t, 500, stats.Succeeded)
		require.EqualValues(t, 250, stats.Rerun)
	})
}
