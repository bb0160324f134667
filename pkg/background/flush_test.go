package background

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// A spyEngine counts the writes to its leases, and can delay them.
type spyEngine struct {
	*hookEngine
	appends, reports, completions atomic.Int64
	most                          atomic.Int64 // bytes of the largest append
	fast                          atomic.Bool  // writes are no longer delayed
}

// newSpy returns a spyEngine that delays writes to runs, and more methods, by the given
// time.
func newSpy(takes time.Duration, more ...string) *spyEngine {
	e := &spyEngine{hookEngine: hooked(nil)}
	e.before = func(method string) error {
		switch method {
		case "append":
			e.appends.Add(1)
		case "report":
			e.reports.Add(1)
		case "complete":
			e.completions.Add(1)
		case "cancel":
		default:
			if !slices.Contains(more, method) {
				return nil
			}
		}
		if !e.fast.Load() {
			time.Sleep(takes)
		}
		return nil
	}
	e.appended = func(n int) { e.most.Store(max(e.most.Load(), int64(n))) }
	return e
}

// feed2 returns an executor that applies the functions it receives to its sink.
func feed2(steps <-chan func(*output.Sink)) Executor {
	return func(_ context.Context, _ engine.Run, sink *output.Sink) (Outcome, error) {
		for step := range steps {
			step(sink)
		}
		return Outcome{}, nil
	}
}

func writes(text string) func(*output.Sink) {
	return func(s *output.Sink) { _, _ = s.Stdout().Write([]byte(text)) }
}

func TestOutputIsStoredLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newSpy(0)
		steps := make(chan func(*output.Sink))
		m := newManager(t, Config{Engine: engine, Executor: feed2(steps)})
		id := spawned(t, m, alice, "tool")
		stored := func() string { return string(must(engine.Tail(t.Context(), id, 0, 1000)).Data) }
		for range 10 {
			steps <- writes("line\n")
		}
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, strings.Repeat("line\n", 10), stored(), "within 100 ms")
		require.EqualValues(t, 1, engine.appends.Load(), "together")
		steps <- writes("more\n")
		time.Sleep(100 * time.Millisecond)
		require.True(t, strings.HasSuffix(stored(), "more\n"))

		appends, reports := engine.appends.Load(), engine.reports.Load()
		time.Sleep(time.Minute)
		require.Equal(t, appends, engine.appends.Load(), "a run that is silent costs nothing")
		require.Equal(t, reports, engine.reports.Load(), "its heartbeat is the worker's")
		steps <- writes("last")
		close(steps)
		synctest.Wait()
		require.True(t, strings.HasSuffix(stored(), "last"), "the rest with the end")
	})
}

// All runs flush at the same moments, and a run whose head is full flushes at most once
// a second.
func TestFlushMoments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy(0)
		var mu sync.Mutex
		moments := map[time.Duration]int{}
		began := time.Now()
		store.appended = func(int) {
			mu.Lock()
			defer mu.Unlock()
			moments[time.Since(began)]++
		}
		m := newManager(t, Config{Engine: store, OutputCap: 4000, Executor: func(_ context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
			time.Sleep(time.Duration(len(run.Tool)) * time.Millisecond)
			for time.Since(began) < 10*time.Second {
				_, _ = fmt.Fprintln(sink.Stdout(), time.Since(began))
				time.Sleep(7 * time.Millisecond)
			}
			return Outcome{}, nil
		}})
		for _, tool := range []string{"a", "bb", "ccc"} {
			spawned(t, m, alice, tool)
		}
		time.Sleep(9 * time.Second)
		synctest.Wait() // for what is stored at this moment

		mu.Lock()
		defer mu.Unlock()
		ordered := slices.Sorted(maps.Keys(moments))
		for i, moment := range ordered {
			require.Zero(t, moment%flushEvery, "%s", moment)
			require.Equal(t, 3, moments[moment], "of all at %s", moment)
			switch {
			case i > 0 && moment < time.Second:
				require.Equal(t, flushEvery, moment-ordered[i-1])
			case moment > 6*time.Second:
				require.Equal(t, fullEvery, moment-ordered[i-1], "the heads are full")
			}
		}
	})
}

func TestBeatsAreHeardOfLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := make(chan func(*output.Sink))
		m := newManager(t, Config{Executor: feed2(steps)})
		events := m.Watch(t.Context(), alice)
		spawned(t, m, bob, "tool")
		id := spawned(t, m, alice, "tool")
		steps <- func(*output.Sink) {} // one of the two
		next := func() engine.Event {
			select {
			case e := <-events:
				return e
			case <-time.After(100 * time.Millisecond):
				return engine.Event{}
			}
		}
		require.Equal(t, engine.EventQueued, next().Kind)
		require.Equal(t, engine.EventStarted, next().Kind)
		for range 2 {
			steps <- func(s *output.Sink) { s.Progress(3, 10, "pages") }
		}
		e := next()
		require.Equal(t, engine.EventBeat, e.Kind)
		require.Equal(t, id, e.Run.ID)
		require.Equal(t, &engine.Progress{Done: 3, Total: 10, Message: "pages"}, e.Run.Progress)
		close(steps)
		require.Equal(t, engine.EventEnded, next().Kind)
	})
}

func TestSlowEngineIsAskedLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy(10 * time.Second)
		m := newManager(t, Config{Engine: store, OutputCap: 1000, Timeout: time.Hour, Executor: func(_ context.Context, _ engine.Run, sink *output.Sink) (Outcome, error) {
			for i := range 10_000 {
				_, _ = fmt.Fprintf(sink.Stdout(), "line %d\n", i)
				time.Sleep(10 * time.Millisecond)
			}
			return Outcome{}, nil
		}})
		id := spawned(t, m, alice, "tool")
		began := time.Now()
		require.Equal(t, engine.StatusSucceeded, wait(t, m, alice, id).Status)
		require.Less(t, time.Since(began), 3*time.Minute, "the work is not slowed down: 100 s and the last writes")
		require.Less(t, store.appends.Load(), int64(20))
		require.LessOrEqual(t, store.most.Load(), int64(1000))
		log := string(must(m.Tail(t.Context(), alice, id, -250, 250)).Data)
		require.True(t, strings.HasSuffix(log, "line 9999\n"), "both ends are kept")
		require.True(t, strings.HasPrefix(string(must(m.Tail(t.Context(), alice, id, 0, 100)).Data), "line 0\n"))
	})
}

func TestSlowEngineDoesNotHoldUpAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy(time.Minute)
		var ended time.Time
		m := newManager(t, Config{Engine: store, Executor: func(ctx context.Context, _ engine.Run, _ *output.Sink) (Outcome, error) {
			<-ctx.Done()
			ended = time.Now()
			return Outcome{}, ctx.Err()
		}})

		id := spawned(t, m, alice, "tool")
		began := time.Now()
		_, err := m.Stop(t.Context(), alice, id, StopRequest{Force: true})
		require.NoError(t, err)
		wait(t, m, alice, id)
		require.Equal(t, time.Second, ended.Sub(began))
	})
}

func TestOutputOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testlog.Buffer
		engine := newBroken(memory.New())
		steps := make(chan func(*output.Sink))
		m := newManager(t, Config{Engine: engine, Executor: feed2(steps), Logger: logTo(&log)})
		id := spawned(t, m, alice, "tool")
		engine.brokenLog.Store(true)
		for range 100 {
			steps <- writes("line\n")
			time.Sleep(time.Second)
		}
		require.Equal(t, 1, strings.Count(log.String(), "output of a background run not stored"), "it is said once")
		require.Empty(t, must(engine.Tail(t.Context(), id, 0, 10)).Data)
		engine.brokenLog.Store(false)
		time.Sleep(HeartbeatEvery + 100*time.Millisecond)
		require.EqualValues(t, 500, must(engine.Tail(t.Context(), id, 0, 10)).End, "nothing is lost")
		close(steps)
		require.Empty(t, wait(t, m, alice, id).ArtifactError)
	})
}

func TestCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		steps := make(chan func(*output.Sink))
		m := newManager(t, Config{Engine: store, Executor: feed2(steps)})
		id := spawned(t, m, alice, "tool")
		var kept *output.Sink
		steps <- func(s *output.Sink) {
			require.Nil(t, s.Restore())
			require.NoError(t, s.Checkpoint(t.Context(), []byte("step 1")))
			require.NoError(t, s.Checkpoint(t.Context(), []byte("step 2")))
			require.Nil(t, s.Restore(), "what this attempt stores is for the next one")
			require.ErrorIs(t, s.Checkpoint(t.Context(), make([]byte, MaxCheckpoint+1)), ErrInvalid)
			kept = s
		}
		synctest.Wait()
		lease := superseded(t, m, id)
		require.Equal(t, "step 2", string(lease.Checkpoint()))
		require.ErrorIs(t, kept.Checkpoint(t.Context(), []byte("zombie")), engine.ErrFenced)
		_, err := lease.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{})
		require.NoError(t, err)
		close(steps)
		synctest.Wait()
		require.ErrorIs(t, kept.Checkpoint(t.Context(), []byte("late")), output.ErrNoRun)
	})
}

// A checkpoint waits while nothing can be stored. It reports no success before it is
// stored, and a stop, a canceled context or the run's deadline still ends the wait.
func TestCheckpointWaitsForItsStorage(t *testing.T) {
	for name, full := range map[string]error{"full": engine.ErrFull, "away": engine.ErrUnavailable} {
		for end, test := range map[string]struct {
			do   func(t *testing.T, m *Manager, broken *atomic.Bool, id string)
			want engine.Status
		}{
			"there is room again": {func(_ *testing.T, _ *Manager, broken *atomic.Bool, _ string) { broken.Store(false) }, engine.StatusSucceeded},
			"it is stopped": {func(t *testing.T, m *Manager, broken *atomic.Bool, id string) {
				must(m.Stop(t.Context(), alice, id, StopRequest{Force: true}))
				broken.Store(false)
			}, engine.StatusCanceled},
			"its deadline": {func(*testing.T, *Manager, *atomic.Bool, string) { time.Sleep(48 * time.Hour) }, engine.StatusFailed},
		} {
			bubble(t, name+", until "+end, func(t *testing.T) {
				var broken atomic.Bool
				var log testlog.Buffer
				store := hooked(func(method string) error {
					if broken.Load() && method == "save" {
						return full
					}
					return nil
				})
				var saved atomic.Bool
				m := newManager(t, Config{Engine: store, Logger: logTo(&log), Executor: func(ctx context.Context, _ engine.Run, sink *output.Sink) (Outcome, error) {
					broken.Store(true)
					err := sink.Checkpoint(ctx, []byte("half way"))
					saved.Store(err == nil)
					return Outcome{}, err
				}})
				id := spawned(t, m, alice, "tool")
				time.Sleep(time.Minute)
				require.False(t, saved.Load(), "ok means that it is stored")
				require.Equal(t, engine.StatusRunning, status(t, m, alice, id))
				require.Equal(t, 1, strings.Count(log.String(), "checkpoint of a background run not stored"), "it is said once")

				test.do(t, m, &broken, id)
				require.Equal(t, test.want, wait(t, m, alice, id).Status)
				require.Equal(t, test.want == engine.StatusSucceeded, saved.Load())
			})
		}
	}
}

func TestCheckpointOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		var before, after error
		ran := call1(t, m, alice, RunRequest{ParkAfter: time.Second, Work: func(_ context.Context, sink *output.Sink) (Outcome, error) {
			before = sink.Checkpoint(t.Context(), []byte("x"))
			time.Sleep(2 * time.Second)
			after = sink.Checkpoint(t.Context(), []byte("x"))
			return Outcome{}, nil
		}})
		wait(t, m, alice, ran.Run.ID)
		require.ErrorIs(t, before, output.ErrNoRun)
		require.NoError(t, after)
		require.ErrorIs(t, output.NewSink(0).Checkpoint(t.Context(), nil), output.ErrNoRun)
		require.Nil(t, output.NewSink(0).Restore())
	})
}

// A refused append or checkpoint stops the run, just as a refused heartbeat does.
func TestFencedWriteStopsTheRun(t *testing.T) {
	for name, write := range map[string]func(*output.Sink){
		"output":     writes("zombie\n"),
		"checkpoint": func(s *output.Sink) { _ = s.Checkpoint(t.Context(), []byte("zombie")) },
	} {
		bubble(t, name, func(t *testing.T) {
			store := memory.New()
			var log testlog.Buffer
			causes := make(chan error, 1)
			fenced := make(chan struct{})
			m := newManager(t, Config{Engine: store, Logger: logTo(&log), Executor: func(ctx context.Context, _ engine.Run, sink *output.Sink) (Outcome, error) {
				<-fenced
				write(sink)
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return Outcome{}, nil
			}})
			id := spawned(t, m, alice, "tool")
			lease := superseded(t, m, id)
			began := time.Now()
			close(fenced)
			require.ErrorIs(t, <-causes, engine.ErrFenced)
			require.LessOrEqual(t, time.Since(began), 100*time.Millisecond)
			synctest.Wait()
			require.Empty(t, must(store.Tail(t.Context(), id, 0, 100)).Data, "and changes nothing")
			require.Contains(t, log.String(), "lost its lease")
			_, err := lease.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{})
			require.NoError(t, err)
		})
	}
}

func TestTailAndArtifacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := make(chan func(*output.Sink))
		m := newManager(t, Config{Executor: feed2(steps)})
		id := spawned(t, m, alice, "tool")
		steps <- writes("\x1b[1mraw\x1b[0m\r\n")
		synctest.Wait()
		read := func() string { return string(must(m.Tail(t.Context(), alice, id, 4, 5)).Data) }
		require.Equal(t, "raw\x1b[", read(), "live, and raw")
		_, err := m.Open(t.Context(), alice, id, engine.OutputLog)
		require.ErrorIs(t, err, engine.ErrNotFound, "not before the end")
		close(steps)
		run := wait(t, m, alice, id)
		require.Equal(t, "raw\x1b[", read())
		require.Equal(t, "runs/"+id+"/output.log", run.Path(engine.OutputLog))
		for name, want := range map[string]string{engine.OutputLog: "\x1b[1mraw\x1b[0m\r\n", engine.ResultJSON: `"status":"succeeded"`} {
			file, err := m.Open(t.Context(), alice, id, name)
			require.NoError(t, err)
			var got bytes.Buffer
			_, err = got.ReadFrom(file)
			require.NoError(t, err)
			require.Contains(t, got.String(), want)
			require.NoError(t, file.Close())
		}
		for _, foreign := range []string{id, "bg_unknown"} {
			_, err = m.Tail(t.Context(), bob, foreign, 0, 10)
			require.ErrorIs(t, err, engine.ErrNotFound)
			_, err = m.Open(t.Context(), bob, foreign, engine.OutputLog)
			require.ErrorIs(t, err, engine.ErrNotFound)
		}
	})
}
