package approval

import (
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/dryrun"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// A decision is for the tool, the code and the grants that the run was held for. It does not
// start a run of anything else.
func TestDecisionsAreBound(t *testing.T) {
	for name, test := range map[string]struct {
		tool  *catalog.Tool
		shown string
		want  string
	}{
		"nothing has changed": {tool: drop("v1", clock)},
		"the code":            {drop("v2", clock), "", "was replaced in the meantime"},
		"more grants":         {drop("v1", plugins.Grant{Clock: true, Random: true}), "", "or what it may use, has changed"},
		"fewer grants":        {drop("v1", plugins.Grant{}), "", "or what it may use, has changed"},
		"unknown code":        {drop("", clock), "", "was replaced in the meantime"},
		"the tool is gone":    {nil, "", "no such tool"},
		"another was shown":   {drop("v1", clock), "another", "has changed since it was shown"},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			run := b.hold(alice, `{"n":1}`, "")
			b.tool = test.tool
			err := b.decideOn(run, wire.Decide{Approve: true, Keep: wire.KeepAlways, Fingerprint: test.shown})
			if test.want == "" {
				require.NoError(t, err)
				require.Equal(t, "succeeded", b.state(run))
				require.Equal(t, []string{run.ID}, b.made)
				return
			}
			require.ErrorContains(t, err, test.want)
			require.Equal(t, test.tool != nil, errors.Is(err, ErrChanged))
			require.Equal(t, "held", b.state(run))
			require.Len(t, b.audited, 1, "only the question")
			list, err := b.Kept(t.Context())
			require.NoError(t, err)
			require.Empty(t, list.Kept)
			require.NoError(t, b.decideOn(run, wire.Decide{}), "it can be refused")
			require.Equal(t, "canceled", b.state(run))
			require.Empty(t, b.made)
		})
	}
}

// A call is decided once: a later decision is a conflict, whatever it says.
func TestDecisionsCountOnce(t *testing.T) {
	for _, first := range []wire.Decide{{Approve: true}, {Reason: "not today"}} {
		b := open(t)
		run := b.hold(alice, `{"n":1}`, "")
		require.NoError(t, b.decideOn(run, first))
		ended := b.state(run)
		for _, second := range []wire.Decide{{Approve: true}, {}} {
			require.Equal(t, wire.CodeConflict, reason.Of(b.decideOn(run, second)).Code)
		}
		require.Equal(t, ended, b.state(run))
		require.Len(t, b.audited, 2)
	}
	b := open(t)
	require.ErrorIs(t, b.decideOn(engine.Run{ID: "bg_none"}, wire.Decide{Approve: true}), engine.ErrNotFound)
}

// Of decisions at the same time one wins, and the audit log has one line of it.
func TestDecisionsAtOnce(t *testing.T) {
	for range 5 {
		b := open(t)
		run := b.hold(alice, `{"n":1}`, "")
		var won atomic.Int32
		var deciding sync.WaitGroup
		for i := range 30 {
			deciding.Go(func() {
				err := b.decideOn(run, wire.Decide{Approve: i%2 == 0})
				if err == nil {
					won.Add(1)
				} else if reason.Of(err).Code != wire.CodeConflict {
					t.Error(err)
				}
			})
		}
		deciding.Wait()
		require.EqualValues(t, 1, won.Load())
		require.Len(t, b.audited, 2)
		require.Equal(t, b.state(run) == "succeeded", len(b.made) == 1)
	}
}

// A dry run makes the checks, and decides nothing.
func TestDecideInDryRun(t *testing.T) {
	b := open(t)
	run, ctx := b.hold(alice, `{"n":1}`, ""), dryrun.With(t.Context())
	for _, in := range []wire.Decide{{Approve: true}, {}} {
		_, err := b.Decide(ctx, run.ID, "operator", in)
		require.NoError(t, err)
		require.Equal(t, "held", b.state(run))
	}
	_, err := b.Decide(ctx, run.ID, "operator", wire.Decide{Approve: true, Fingerprint: "another"})
	require.ErrorIs(t, err, ErrChanged)
}

// The policy in force when somebody decides wins over the decision.
func TestDeniedByNow(t *testing.T) {
	b := open(t)
	run := b.hold(alice, `{"n":1}`, "")
	b.rules.Policy.Tools = map[string]Decision{"drop": Deny}
	require.ErrorIs(t, b.decideOn(run, wire.Decide{Approve: true}), reason.ErrApproval)
	require.Equal(t, "held", b.state(run))
}

// A session cannot fill the list of those who decide.
func TestLimitOfWaitingCalls(t *testing.T) {
	b := open(t)
	var first engine.Run
	for i := range MaxWaiting {
		if run := b.hold(alice, `{"n":1}`, ""); i == 0 {
			first = run
		}
	}
	_, err := b.tryHold(alice, `{"n":1}`, "")
	require.ErrorContains(t, err, "100 calls of this session wait for approval already")
	b.hold(bob, `{"n":1}`, "")
	require.NoError(t, b.decideOn(first, wire.Decide{}))
	b.hold(alice, `{"n":1}`, "")
}

// What is not known cannot be held, and a repeated request is not asked about twice.
func TestHold(t *testing.T) {
	b := open(t)
	b.tool = drop("", clock)
	_, err := b.tryHold(alice, `{"n":1}`, "")
	require.ErrorContains(t, err, "is being replaced")
	b.tool = drop("v1", clock)

	run := b.hold(alice, `{"n":1}`, "")
	again, err := b.Hold(t.Context(), alice, "drop", false, func(Binding) (background.SpawnResult, error) {
		return background.SpawnResult{Run: run, Reused: true}, nil
	})
	require.NoError(t, err)
	require.Equal(t, run.ID, again.ID)
	require.Equal(t, []string{`asked run of alice by "": ""`}, b.audited)
}

// The calls within a run are those of its descendants.
func TestWaitingIn(t *testing.T) {
	b := open(t)
	outer := b.hold(alice, `{"n":1}`, "")
	other := b.hold(alice, `{"n":2}`, "")
	bound, err := Bind(b.tool)
	require.NoError(t, err)
	terms, err := json.Marshal(bound)
	require.NoError(t, err)
	inner, err := b.runs.Spawn(t.Context(), alice, background.SpawnRequest{Tool: "drop", Version: "v1", Args: json.RawMessage(`{}`), Parked: true, Held: HeldFor, Terms: terms, Parent: outer.ID})
	require.NoError(t, err)

	ids := func(id string) (all []string) {
		found, err := b.WaitingIn(t.Context(), alice, id)
		require.NoError(t, err)
		for _, run := range found {
			all = append(all, run.ID)
		}
		return all
	}
	require.Equal(t, []string{outer.ID, inner.ID}, ids(outer.ID))
	require.Equal(t, []string{inner.ID}, ids(inner.ID))
	require.Equal(t, []string{other.ID}, ids(other.ID))
	require.Empty(t, ids("bg_none"))
}

// A call that nobody decides on is refused when its time is over.
func TestExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t)
		b.rules.Policy.Wait = time.Hour
		var expiring sync.WaitGroup
		expiring.Go(func() { b.Expire(b.Serving) })
		run := b.hold(alice, `{"n":1}`, "")
		time.Sleep(59 * time.Minute)
		require.Equal(t, "held", b.state(run))
		time.Sleep(2 * time.Minute)
		require.Equal(t, "canceled", b.state(run))
		b.closes()
		expiring.Wait()
		require.Equal(t, `refused run of alice by "host": "nobody has decided in 1h0m0s"`, b.audited[1])
		require.NoError(t, b.runs.Close(t.Context()))
	})
}
