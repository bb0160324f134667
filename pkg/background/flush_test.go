package background

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/testlog"
)

// A spyEngine counts what its leases are asked to do, and may be slow at it.
type spyEngine struct {
	*hookEngine
	appends, reports, completions atomic.Int64
	most                          atomic.Int64 // bytes of one append
	fast                          atomic.Bool  // no more slow
}

// newSpy returns a spyEngine whose writes to runs take so long.
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

// feed2 returns an executor that does to its sink what it is sent.
func feed2(steps <-chan func(*Sink)) Executor {
	return func(_ context.Context, _ Run, sink *Sink) (Outcome, error) {
		for step := range steps {
			step(sink)
		}
		return Outcome{}, nil
	}
}

func writes(text string) func(*Sink) {
	return func(s *Sink) { _, _ = s.Stdout().Write([]byte(text)) }
}

func TestOutputIsStoredLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newSpy(0)
		steps := make(chan func(*Sink))
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

func TestBeatsAreHeardOfLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := make(chan func(*Sink))
		m := newManager(t, Config{Executor: feed2(steps)})
		events := m.Watch(t.Context(), alice)
		spawned(t, m, bob, "tool")
		id := spawned(t, m, alice, "tool")
		steps <- func(*Sink) {} // one of the two
		next := func() Event {
			select {
			case e := <-events:
				return e
			case <-time.After(100 * time.Millisecond):
				return Event{}
			}
		}
		require.Equal(t, EventQueued, next().Kind)
		require.Equal(t, EventStarted, next().Kind)
		for range 2 {
			steps <- func(s *Sink) { s.Progress(3, 10, "pages") }
		}
		e := next()
		require.Equal(t, EventBeat, e.Kind)
		require.Equal(t, id, e.Run.ID)
		require.Equal(t, &Progress{Done: 3, Total: 10, Message: "pages"}, e.Run.Progress)
		close(steps)
		require.Equal(t, EventEnded, next().Kind)
	})
}

func TestSlowEngineIsAskedLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newSpy(10 * time.Second)
		m := newManager(t, Config{Engine: engine, OutputCap: 1000, Timeout: time.Hour, Executor: func(_ context.Context, _ Run, sink *Sink) (Outcome, error) {
			for i := range 10_000 {
				_, _ = fmt.Fprintf(sink.Stdout(), "line %d\n", i)
				time.Sleep(10 * time.Millisecond)
			}
			return Outcome{}, nil
		}})
		id := spawned(t, m, alice, "tool")
		began := time.Now()
		require.Equal(t, StatusSucceeded, wait(t, m, alice, id).Status)
		require.Less(t, time.Since(began), 3*time.Minute, "the work is not slowed down: 100 s and the last writes")
		require.Less(t, engine.appends.Load(), int64(20))
		require.LessOrEqual(t, engine.most.Load(), int64(1000))
		log := string(must(m.Tail(t.Context(), alice, id, -250, 250)).Data)
		require.True(t, strings.HasSuffix(log, "line 9999\n"), "both ends are kept")
		require.True(t, strings.HasPrefix(string(must(m.Tail(t.Context(), alice, id, 0, 100)).Data), "line 0\n"))
	})
}

func TestSlowEngineDoesNotHoldUpAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newSpy(time.Minute)
		m := newManager(t, Config{Engine: engine})
		var ended time.Time
		m.cfg.Executor = func(ctx context.Context, _ Run, _ *Sink) (Outcome, error) {
			<-ctx.Done()
			ended = time.Now()
			return Outcome{}, ctx.Err()
		}
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
		engine := newBroken(NewMemoryEngine())
		steps := make(chan func(*Sink))
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
		engine := NewMemoryEngine()
		steps := make(chan func(*Sink))
		m := newManager(t, Config{Engine: engine, Executor: feed2(steps)})
		id := spawned(t, m, alice, "tool")
		var kept *Sink
		steps <- func(s *Sink) {
			require.Nil(t, s.Restore())
			require.NoError(t, s.Checkpoint([]byte("step 1")))
			require.NoError(t, s.Checkpoint([]byte("step 2")))
			require.Nil(t, s.Restore(), "what this attempt stores is for the next one")
			require.ErrorIs(t, s.Checkpoint(make([]byte, MaxCheckpoint+1)), ErrInvalid)
			kept = s
		}
		synctest.Wait()
		lease := superseded(t, m, id)
		require.Equal(t, "step 2", string(lease.Checkpoint()))
		require.ErrorIs(t, kept.Checkpoint([]byte("zombie")), ErrFenced)
		_, err := lease.Complete(t.Context(), StatusSucceeded, Beat{}, End{})
		require.NoError(t, err)
		close(steps)
		synctest.Wait()
		require.ErrorIs(t, kept.Checkpoint([]byte("late")), ErrNoRun)
	})
}

func TestCheckpointOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		var before, after error
		ran := call1(t, m, alice, RunRequest{ParkAfter: time.Second, Work: func(_ context.Context, sink *Sink) (Outcome, error) {
			before = sink.Checkpoint([]byte("x"))
			time.Sleep(2 * time.Second)
			after = sink.Checkpoint([]byte("x"))
			return Outcome{}, nil
		}})
		wait(t, m, alice, ran.Run.ID)
		require.ErrorIs(t, before, ErrNoRun)
		require.NoError(t, after)
		require.ErrorIs(t, new(Sink).Checkpoint(nil), ErrNoRun)
		require.Nil(t, new(Sink).Restore())
	})
}

// A refused append or checkpoint stops the run as a refused heartbeat does.
func TestFencedWriteStopsTheRun(t *testing.T) {
	for name, write := range map[string]func(*Sink){
		"output":     writes("zombie\n"),
		"checkpoint": func(s *Sink) { _ = s.Checkpoint([]byte("zombie")) },
	} {
		bubble(t, name, func(t *testing.T) {
			engine := NewMemoryEngine()
			var log testlog.Buffer
			causes := make(chan error, 1)
			fenced := make(chan struct{})
			m := newManager(t, Config{Engine: engine, Logger: logTo(&log), Executor: func(ctx context.Context, _ Run, sink *Sink) (Outcome, error) {
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
			require.ErrorIs(t, <-causes, ErrFenced)
			require.LessOrEqual(t, time.Since(began), 100*time.Millisecond)
			synctest.Wait()
			require.Empty(t, must(engine.Tail(t.Context(), id, 0, 100)).Data, "and changes nothing")
			require.Contains(t, log.String(), "lost its lease")
			_, err := lease.Complete(t.Context(), StatusSucceeded, Beat{}, End{})
			require.NoError(t, err)
		})
	}
}

func TestTailAndArtifacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := make(chan func(*Sink))
		m := newManager(t, Config{Executor: feed2(steps)})
		id := spawned(t, m, alice, "tool")
		steps <- writes("\x1b[1mraw\x1b[0m\r\n")
		synctest.Wait()
		read := func() string { return string(must(m.Tail(t.Context(), alice, id, 4, 5)).Data) }
		require.Equal(t, "raw\x1b[", read(), "live, and raw")
		_, err := m.Open(t.Context(), alice, id, OutputLog)
		require.ErrorIs(t, err, ErrNotFound, "not before the end")
		close(steps)
		run := wait(t, m, alice, id)
		require.Equal(t, "raw\x1b[", read())
		require.Equal(t, "runs/"+id+"/output.log", run.Path(OutputLog))
		for name, want := range map[string]string{OutputLog: "\x1b[1mraw\x1b[0m\r\n", ResultJSON: `"status":"succeeded"`} {
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
			require.ErrorIs(t, err, ErrNotFound)
			_, err = m.Open(t.Context(), bob, foreign, OutputLog)
			require.ErrorIs(t, err, ErrNotFound)
		}
	})
}
