package runs

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/server/internal/agent"
	"github.com/toolhost/toolhost/server/internal/catalog"
)

// inRun calls f within a run of caller.
func inRun(t *testing.T, b *bench, f func(ctx context.Context, sink *output.Sink)) {
	t.Helper()
	b.call = func(ctx context.Context, x *Execution) (abi.Result, error) {
		f(ctx, x.sink)
		return success(`"done"`), nil
	}
	run := b.spawn("caller")
	_, err := b.runs.Check(t.Context(), alice, background.CheckRequest{IDs: []string{run.ID}, Wait: background.MaxWait})
	require.NoError(t, err)
}

// What becomes of a nested call after a crash depends on its tool, and on whether the
// calling call is a run.
func TestCrashPolicy(t *testing.T) {
	tools := map[string]abi.Hints{
		"caller": runnable, "reads": {Readonly: true}, "writes": {}, "works": runnable, "wipes": {Destructive: new(true)}, "refused": {},
	}
	for name, test := range map[string]struct {
		tool  string
		run   bool // the calling call is a run
		ask   bool // destructive calls are held
		want  host.CrashPolicy
		child bool
	}{
		"gone":         {"gone", true, false, host.RepeatedOnCrash, false},
		"agent's":      {agent.SpawnBackground, true, false, host.RepeatedOnCrash, false},
		"readonly":     {"reads", true, false, host.RepeatedOnCrash, false},
		"refused":      {"refused", true, false, host.RepeatedOnCrash, false},
		"acts":         {"writes", true, false, host.Detached, true},
		"background":   {"works", true, false, host.Detached, true},
		"no run":       {"works", false, false, host.LostOnCrash, false},
		"held":         {"wipes", true, true, host.Detached, true},
		"held, no run": {"wipes", false, true, host.LostOnCrash, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, tools)
			b.policy.Ask = test.ask
			b.Child = func(_ context.Context, c ChildCall) (Child, error) {
				require.Equal(t, "caller", c.Caller.Name)
				tool, err := b.Catalog.Lookup(c.Tool)
				require.NoError(t, err)
				args, err := catalog.ParseArgs(c.Tool, catalog.Args{}, c.Args)
				require.NoError(t, err)
				if c.Tool == "refused" {
					return Child{}, host.ErrDenied
				}
				return Child{Tool: tool, Args: args, Run: func() (background.SpawnRequest, error) { return b.request(c.Tool), nil }}, nil
			}
			caller := &attached{parked: make(chan struct{}), err: errors.New("no slot")}
			if test.run {
				close(caller.parked)
				caller.err = nil
			}
			tool, err := b.Catalog.Lookup("caller")
			require.NoError(t, err)

			inRun(t, b, func(ctx context.Context, sink *output.Sink) {
				_, _, s := b.Attach(ctx, sink, tool, host.Call{Session: alice}, caller)
				policy := s.CrashPolicy(3, host.ToolCall{Tool: test.tool, Args: json.RawMessage(`{}`)})
				require.Equal(t, test.want, policy)
				child, ok := s.children[3]
				require.Equal(t, test.child, ok)
				require.Equal(t, test.child && test.ask, child.Held != "")
				require.Equal(t, test.run, s.Status().Live)
			})
		})
	}
}

// The child of an operation has another id once the run has started over.
func TestChildrenOfARunThatStartedOver(t *testing.T) {
	b := open(t, map[string]abi.Hints{"caller": runnable})
	inRun(t, b, func(ctx context.Context, _ *output.Sink) {
		s := &Suspension{executor: b.Executor, ctx: ctx}
		require.Equal(t, background.ChildID(s.name(), 3), s.id(3))
	})
}
