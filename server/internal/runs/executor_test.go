package runs

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/reason"
)

var runnable = abi.Hints{SupportsBackground: true}

func TestExecute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, map[string]abi.Hints{"work": runnable})
		b.call = func(_ context.Context, x *Execution) (abi.Result, error) {
			require.Equal(t, "de", x.Requested.Locale)
			return success(`"done"`), nil
		}
		req := b.request("work")
		req.Terms = Terms{Locale: "de"}.Traced(t.Context())
		r, err := b.runs.Spawn(t.Context(), alice, req)
		require.NoError(t, err)

		synctest.Wait()
		run, err := b.runs.Get(t.Context(), alice, r.Run.ID)
		require.NoError(t, err)
		require.Equal(t, engine.StatusSucceeded, run.Status)
		require.EqualValues(t, 7, run.Cost.Fuel)
	})
}

// A run that never begins says why; it is no run of a broken tool.
func TestExecuteWhatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, map[string]abi.Hints{"work": runnable})
		b.call = func(context.Context, *Execution) (abi.Result, error) {
			return abi.Result{}, reason.Refuse("work is gone")
		}
		id := b.spawn("work").ID
		synctest.Wait()
		run, err := b.runs.Get(t.Context(), alice, id)
		require.NoError(t, err)
		require.Equal(t, engine.KindRejected, run.Error.Kind)
		require.Contains(t, run.Error.Message, "work is gone")
	})
}

// Runs of an earlier process wait until the server is open.
func TestExecuteBeforeTheServerIsOpen(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	x := &Executor{Opened: make(chan struct{})}
	closing := errors.New("closing")
	cancel(closing)
	_, err := x.Execute(ctx, engine.Run{}, nil)
	require.ErrorIs(t, err, closing)

	close(x.Opened)
	_, err = x.Execute(t.Context(), engine.Run{ID: "task_1", Terms: json.RawMessage(`{"fuel":"much"}`)}, nil)
	require.ErrorContains(t, err, "reading the terms of task_1")
}

func TestUnchanged(t *testing.T) {
	tool, err := newCatalog(t, map[string]abi.Hints{"work": runnable}).Lookup("work")
	require.NoError(t, err)
	version, err := tool.Version()
	require.NoError(t, err)

	other := Terms{Binding: approval.Binding{Fingerprint: "another"}}.encode()
	for name, test := range map[string]struct {
		run  engine.Run
		fits bool
	}{
		"same version":     {engine.Run{Version: version}, true},
		"other version":    {engine.Run{Version: "another"}, false},
		"schedule":         {engine.Run{Version: "another", Schedule: "sched_1"}, true},
		"repeated":         {engine.Run{Version: "another", Schedule: "sched_1", Attempt: 2}, false},
		"other approval":   {engine.Run{Version: version, Terms: other}, false},
		"held by schedule": {engine.Run{Version: version, Schedule: "sched_1", Terms: other}, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&Execution{Run: test.run}).Unchanged(tool)
			require.Equal(t, test.fits, err == nil, err)
		})
	}
}

func TestReadmit(t *testing.T) {
	b := open(t, map[string]abi.Hints{"work": runnable, "direct": {}, "reads": {Readonly: true, SupportsBackground: true}})
	args := json.RawMessage(`{}`)
	for name, test := range map[string]struct {
		run  engine.Run
		kind engine.ErrorKind // empty: it may start
		why  string
	}{
		"due":          {engine.Run{Tool: "work", Args: args}, "", ""},
		"gone":         {engine.Run{Tool: "gone", Args: args}, engine.KindRejected, "no such tool"},
		"direct":       {engine.Run{Tool: "direct", Args: args}, engine.KindRejected, "does not support background runs"},
		"parked":       {engine.Run{Tool: "direct", Args: args, Origin: engine.OriginParked}, "", ""},
		"secret":       {engine.Run{Tool: "work", Args: args, Secret: true}, engine.KindRejected, "contained a secret"},
		"bad args":     {engine.Run{Tool: "work", Args: json.RawMessage(`[]`)}, engine.KindRejected, "expected an object"},
		"again":        {engine.Run{Tool: "work", Args: args, Attempt: 1}, engine.KindOrphaned, "neither idempotent nor readonly"},
		"restartable":  {engine.Run{Tool: "work", Args: args, Attempt: 1, Waiting: engine.Waiting{Restartable: true}, Version: b.Version("work")}, "", ""},
		"reads again":  {engine.Run{Tool: "reads", Args: args, Attempt: 1, Version: b.Version("reads")}, "", ""},
		"reads, other": {engine.Run{Tool: "reads", Args: args, Attempt: 1, Version: "another"}, engine.KindOrphaned, "was replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			err := b.Readmit(t.Context(), test.run)
			if test.kind == "" {
				require.NoError(t, err)
				return
			}
			var refused *background.Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, test.kind, refused.Kind)
			require.Contains(t, refused.Message, test.why)
		})
	}
}

// A run that is due is held if its tool needs approval, and bound to the tool that a
// person is asked about.
func TestHoldWhatIsDue(t *testing.T) {
	b := open(t, map[string]abi.Hints{"work": {SupportsBackground: true, Destructive: new(true)}})
	run := engine.Run{ID: "task_1", Session: alice, Tool: "work", Args: json.RawMessage(`{}`)}
	b.Hold(t.Context(), &run)
	require.Empty(t, run.Held)

	b.policy.Ask = true
	b.Hold(t.Context(), &run)
	require.Equal(t, approval.HeldFor, run.Held)
	bound, err := approval.BindingOf(run)
	require.NoError(t, err)
	require.NotEmpty(t, bound.Fingerprint)

	gone := engine.Run{Tool: "gone"}
	b.Hold(t.Context(), &gone)
	require.Empty(t, gone.Held, "it is refused when it starts")
}

// The time that a run waited for something is part of its error.
func TestOutcomeOfADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, map[string]abi.Hints{"work": runnable})
		b.call = func(ctx context.Context, _ *Execution) (abi.Result, error) {
			<-ctx.Done()
			err := &host.WaitedError{Err: host.TimeLimit(time.Minute), For: "example.org to answer"}
			return abi.Result{Kind: abi.LimitReached, Limit: abi.LimitTime}, err
		}
		req := b.request("work")
		req.Timeout = time.Minute
		r, err := b.runs.Spawn(t.Context(), alice, req)
		require.NoError(t, err)

		time.Sleep(2 * time.Minute)
		synctest.Wait()
		run, err := b.runs.Get(t.Context(), alice, r.Run.ID)
		require.NoError(t, err)
		require.Equal(t, engine.KindTimeout, run.Error.Kind)
		require.Equal(t, "The run's deadline of 1m0s passed while it waited: example.org to answer", run.Error.Message)
	})
}
