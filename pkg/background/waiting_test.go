package background

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// steps returns an executor whose tool "waits" calls the functions one after the other,
// each after the wait that the last one requested. The state of the run is the index of
// the next function.
func steps(all ...func(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error)) Executor {
	return func(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
		if run.Tool != "waits" {
			return script(ctx, run, sink)
		}
		n := 0
		if state := StateOf(ctx); state != nil {
			n = int(state[0])
		}
		_, _ = fmt.Fprintf(sink.Stdout(), "step %d\n", n)
		return all[n](ctx, run, sink)
	}
}

func outputOf(t *testing.T, m *Manager, id string) string {
	t.Helper()
	chunk, err := m.Tail(t.Context(), alice, id, 0, 1<<10)
	require.NoError(t, err)
	return string(chunk.Data)
}

func value(text string) (Outcome, error) { return Outcome{Result: json.RawMessage(text)}, nil }

// TestWaiting: a run that sleeps holds no slot, and continues with its state and output
// in the same attempt, however often it sleeps.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleep := func(n byte) func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			return func(_ context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
				sink.Status(fmt.Sprint("slept ", n))
				return Outcome{Suspend: &Suspension{State: []byte{n}, Wake: time.Now().Add(time.Hour)}}, nil
			}
		}
		m := newManager(t, Config{Executor: steps(sleep(1), sleep(2), sleep(3), sleep(4),
			func(_ context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
				require.Equal(t, "slept 4", sink.Beat().Detail)
				return value(fmt.Sprint(run.Attempt))
			})})
		id := spawned(t, m, alice, "waits")
		synctest.Wait()
		run := must(m.engine.Get(t.Context(), id))
		require.Equal(t, engine.StatusWaiting, run.Status)
		require.Zero(t, m.admission.active())
		require.Equal(t, "step 0\n", outputOf(t, m, id))

		begun := time.Now()
		run = wait(t, m, alice, id)
		require.Equal(t, engine.StatusSucceeded, run.Status)
		require.Equal(t, 4*time.Hour, time.Since(begun))
		require.JSONEq(t, "1", string(must(m.engine.Payload(t.Context(), id, engine.PartResult))))
		require.Equal(t, "step 0\nstep 1\nstep 2\nstep 3\nstep 4\n", outputOf(t, m, id))
	})
}

// TestWaitingChildren: children that are stored with a state have ids that derive from
// their parent's; a child that is already stored is not stored again.
func TestWaitingChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		children := []Child{{1, SpawnRequest{Tool: "second", Silent: true}}, {2, SpawnRequest{Tool: "echo", Args: json.RawMessage(`[1]`), Silent: true}}}
		await := func(n byte, op int64) func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			return func(ctx context.Context, run engine.Run, _ *output.Sink) (Outcome, error) {
				if err := SaveState(ctx, Suspension{State: []byte{n - 1}, Children: children}); err != nil {
					return Outcome{}, err
				}
				return Outcome{Suspend: &Suspension{State: []byte{n}, Await: []string{ChildID(run.ID, op)}, Children: children}}, nil
			}
		}
		var m *Manager
		m = newManager(t, Config{PerHost: 1, Executor: steps(await(1, 1), await(2, 2), func(ctx context.Context, run engine.Run, _ *output.Sink) (Outcome, error) {
			runs := must(m.List(ctx, engine.Query{Session: alice, Parent: run.ID}))
			for _, child := range runs {
				require.Equal(t, engine.StatusSucceeded, child.Status)
				require.Equal(t, 1, child.Depth)
			}
			return value(fmt.Sprint(len(runs)))
		})})
		id := spawned(t, m, alice, "waits")
		require.Equal(t, engine.StatusSucceeded, wait(t, m, alice, id).Status)
		require.JSONEq(t, "2", string(must(m.engine.Payload(t.Context(), id, engine.PartResult))))
	})
}

// TestWaitingMessage: a message lets a waiting run continue, even if it arrived before
// the run began to wait.
func TestWaitingMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		receive := func(n byte) func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			return func(ctx context.Context, run engine.Run, _ *output.Sink) (Outcome, error) {
				got := must(Receive(ctx, 0, 0))
				if len(got) == 0 {
					return Outcome{Suspend: &Suspension{State: []byte{n}}}, nil
				}
				return value(string(got[0].Data))
			}
		}
		m := newManager(t, Config{Executor: steps(receive(1), receive(2))})
		id := spawned(t, m, alice, "waits")
		synctest.Wait()
		require.Equal(t, engine.StatusWaiting, must(m.engine.Get(t.Context(), id)).Status)
		must(m.Mailbox(alice, id).Send(t.Context(), "", json.RawMessage(`"hello"`)))
		wait(t, m, alice, id)
		require.JSONEq(t, `"hello"`, string(must(m.engine.Payload(t.Context(), id, engine.PartResult))))
	})
}

// TestWaitingStop: a stop ends a waiting run and its children at once.
func TestWaitingStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{Executor: steps(func(_ context.Context, run engine.Run, _ *output.Sink) (Outcome, error) {
			return Outcome{Suspend: &Suspension{State: []byte{1}, Await: []string{ChildID(run.ID, 1)}, Children: []Child{{1, SpawnRequest{Tool: "sleep"}}}}}, nil
		})})
		id := spawned(t, m, alice, "waits")
		synctest.Wait()
		run := must(m.Stop(t.Context(), alice, id, StopRequest{}))
		require.Equal(t, engine.StatusCanceled, run.Status)
		require.Equal(t, engine.StatusCanceled, must(m.engine.Get(t.Context(), ChildID(id, 1))).Status)
	})
}

// TestWaitingHeld: a run waits for a child that waits for a decision.
func TestWaitingHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{Executor: func(_ context.Context, run engine.Run, _ *output.Sink) (Outcome, error) {
			if run.Tool == "waits" && run.StateSize == 0 {
				child := ChildID(run.ID, 1)
				return Outcome{Suspend: &Suspension{State: []byte{1}, Await: []string{child}, Children: []Child{{1, SpawnRequest{Tool: "child", Held: "approval"}}}}}, nil
			}
			return value(`"done"`)
		}})
		id := spawned(t, m, alice, "waits")
		time.Sleep(time.Hour)
		require.Equal(t, engine.StatusWaiting, must(m.engine.Get(t.Context(), id)).Status)
		require.Equal(t, engine.StatusQueued, must(m.engine.Get(t.Context(), ChildID(id, 1))).Status)
		must(m.Release(t.Context(), ChildID(id, 1)))
		require.Equal(t, engine.StatusSucceeded, wait(t, m, alice, id).Status)
	})
}

// TestWaitingDropped: a run whose state was dropped does not continue after an
// interruption.
func TestWaitingDropped(t *testing.T) {
	for name, want := range map[string]engine.Status{"kept": engine.StatusQueued, "dropped": engine.StatusFailed} {
		bubble(t, name, func(t *testing.T) {
			m := must(New(t.Context(), Config{Executor: func(ctx context.Context, run engine.Run, _ *output.Sink) (Outcome, error) {
				if err := SaveState(ctx, Suspension{State: []byte{1}}); err != nil {
					return Outcome{}, err
				}
				if name == "dropped" {
					if err := DropState(ctx); err != nil {
						return Outcome{}, err
					}
				}
				<-ctx.Done()
				return Outcome{}, ctx.Err()
			}}))
			id := spawned(t, m, alice, "waits")
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.NoError(t, m.Close(ctx))
			require.Equal(t, want, must(m.engine.Get(t.Context(), id)).Status)
		})
	}
}

// TestWaitingRefused: a suspension that cannot be stored ends the run, and says so.
func TestWaitingRefused(t *testing.T) {
	for name, s := range map[string]Suspension{
		"no state":    {},
		"a bad child": {State: []byte{1}, Children: []Child{{1, SpawnRequest{}}}},
		"a key":       {State: []byte{1}, Children: []Child{{1, SpawnRequest{Tool: "echo", IdempotencyKey: "x"}}}},
	} {
		bubble(t, name, func(t *testing.T) {
			m := newManager(t, Config{Executor: steps(func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
				return Outcome{Suspend: &s}, nil
			})})
			run := wait(t, m, alice, spawned(t, m, alice, "waits"))
			require.Equal(t, engine.StatusFailed, run.Status)
			require.Equal(t, engine.KindInternal, run.Error.Kind)
		})
	}
}

// TestUnderPressure: work is told when other runs need its slot.
func TestUnderPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var crowded []bool
		m := newManager(t, Config{PerHost: 4, Executor: func(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
			crowded = append(crowded, UnderPressure(ctx))
			if run.Tool == "sleep" {
				return script(ctx, run, sink)
			}
			return value("1")
		}})
		require.False(t, UnderPressure(t.Context()), "no run")
		for _, tool := range []string{"sleep", "sleep", "sleep", "ends"} {
			spawned(t, m, alice, tool)
			synctest.Wait()
		}
		require.Equal(t, []bool{false, false, true, true}, crowded)
	})
}
