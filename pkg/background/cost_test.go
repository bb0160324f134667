package background

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// TestCostOfAttempts: a run that is interrupted and run again reports the cost of all
// its attempts.
func TestCostOfAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		cfg := Config{Engine: store, Readmit: yes, Executor: func(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
			sink.Cost(engine.Cost{Fuel: 1, MemoryPeak: 7})
			if run.Attempt == 1 {
				sink.Meter(func() engine.Cost { return engine.Cost{Fuel: 9, MemoryPeak: 7} })
				<-ctx.Done()
				sink.Cost(engine.Cost{Fuel: 10, CPU: time.Second, MemoryPeak: 7})
				return Outcome{}, ctx.Err()
			}
			sink.Cost(engine.Cost{Fuel: 20, CPU: time.Minute, MemoryPeak: 5})
			return Outcome{}, nil
		}}
		first, err := New(t.Context(), cfg)
		require.NoError(t, err)
		id := spawned(t, first, alice, "echo")
		time.Sleep(3 * time.Second)
		require.Equal(t, engine.Cost{Fuel: 9, MemoryPeak: 7}, must(first.Get(t.Context(), alice, id)).Cost, "while it runs")
		require.Equal(t, engine.Cost{Fuel: 9, MemoryPeak: 7}, must(first.List(t.Context(), engine.Query{Session: alice}))[0].Cost)
		require.Equal(t, engine.Cost{Fuel: 1, MemoryPeak: 7}, must(store.Get(t.Context(), id)).Cost, "what it used so far is not stored, and no event")
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, first.Close(gone))

		second, err := New(t.Context(), cfg)
		require.NoError(t, err)
		defer second.Close(t.Context())
		run := wait(t, second, alice, id)
		require.Equal(t, 2, run.Attempt)
		require.Equal(t, engine.Cost{Fuel: 30, CPU: time.Second + time.Minute, MemoryPeak: 7}, run.Cost)
	})
}

// TestCostOfCrashedAttempt: the cost up to a checkpoint is stored with the checkpoint, and
// so survives a crash.
func TestCostOfCrashedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, cost := memory.New(), make(chan engine.Cost)
		m := newManager(t, Config{Engine: store, Executor: func(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
			sink.Meter(func() engine.Cost { return engine.Cost{Fuel: 9, MemoryPeak: 7} })
			if err := sink.Checkpoint(ctx, []byte("half way")); err != nil {
				return Outcome{}, err
			}
			cost <- must(store.Get(ctx, run.ID)).Cost
			<-ctx.Done()
			return Outcome{}, ctx.Err()
		}})
		spawned(t, m, alice, "echo")
		require.Equal(t, engine.Cost{Fuel: 9, MemoryPeak: 7}, <-cost)
	})
}

// TestDiagnosis: an operator sees why a run failed, within size limits and without
// control characters, and nothing is repeated.
func TestDiagnosis(t *testing.T) {
	long := strings.Repeat("é", 4<<10)
	for name, c := range map[string]struct {
		outcome Outcome
		err     error
		want    *engine.Diagnosis
	}{
		"succeeded":       {outcome: Outcome{Diagnosis: &engine.Diagnosis{Reason: "none"}}},
		"said to models":  {err: &Error{Kind: engine.KindToolError, Message: "no such file"}},
		"with a cause":    {err: &Error{Kind: engine.KindRejected, Message: "refused", Err: errors.New("the cause\x1b[31m")}, want: &engine.Diagnosis{Reason: "the cause"}},
		"an error":        {err: errors.New("disk on fire"), want: &engine.Diagnosis{Reason: "disk on fire"}},
		"an internal one": {err: &Error{Message: "key hunter2"}, want: &engine.Diagnosis{Reason: "key hunter2"}},
		"given": {outcome: Outcome{Diagnosis: &engine.Diagnosis{Reason: "crash", Trace: "a\nb\x07", LastWords: "bye\r\n"}}, err: errors.New("x"),
			want: &engine.Diagnosis{Reason: "crash", Trace: "a\nb", LastWords: "bye"}},
		"long": {outcome: Outcome{Diagnosis: &engine.Diagnosis{Reason: long, Trace: long, LastWords: long + "end"}}, err: errors.New("x"),
			want: &engine.Diagnosis{Reason: long[:1020] + "…", Trace: long[:1532] + "…", LastWords: "…" + long[:1530] + "end"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newManager(t, Config{Executor: func(context.Context, engine.Run, *output.Sink) (Outcome, error) { return c.outcome, c.err }})
				run := wait(t, m, alice, spawned(t, m, alice, "echo"))
				require.Equal(t, c.want, run.Diagnosis)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{Executor: func(context.Context, engine.Run, *output.Sink) (Outcome, error) { panic("hunter2") }})
		run := wait(t, m, alice, spawned(t, m, alice, "echo"))
		require.Equal(t, "panic: hunter2", run.Diagnosis.Reason)
		require.Contains(t, run.Diagnosis.Trace, "cost_test.go")
	})
}
