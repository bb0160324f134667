package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

func offerOf(tool, version string) engine.Offer {
	return engine.Offer{Tools: map[string]string{tool: version}}
}

// queueVersion submits a run of a tool's version to the shared queue.
func queueVersion(t *testing.T, w engine.Worker, id, version string, change ...func(*engine.Run)) {
	t.Helper()
	run := newRun(id, "s")
	run.Version = version
	for _, f := range change {
		f(&run)
	}
	require.NoError(t, w.Submit(t.Context(), run, nil))
}

func offers(t *testing.T, e *store) {
	old := joined(t, e, engine.WorkerInfo{TTL: forever, Offer: offerOf("primes", "v1")})
	updated := joined(t, e, engine.WorkerInfo{TTL: forever, Offer: offerOf("primes", "v2")})
	none := joined(t, e, engine.WorkerInfo{TTL: forever, Offer: engine.Offer{Tools: map[string]string{}}})

	queueVersion(t, old, "bg_1", "v1")
	queueVersion(t, old, "bg_2", "v2")
	queueVersion(t, old, "bg_any", "")
	require.Empty(t, claimUpTo(t, none, 10, everything))
	require.Equal(t, "bg_2 bg_any", claimUpTo(t, updated, 10, everything))
	require.Equal(t, "bg_1", claimUpTo(t, old, 10, everything))
}

// offersChange: only the current offer counts.
func offersChange(t *testing.T, e *store) {
	old := joined(t, e, engine.WorkerInfo{TTL: forever, Offer: offerOf("primes", "v1")})
	queueVersion(t, old, "bg_2", "v2")
	other := joined(t, e, engine.WorkerInfo{TTL: forever, Offer: offerOf("primes", "v2")})
	require.Empty(t, claimUpTo(t, old, 10, everything))

	require.NoError(t, old.Offer(t.Context(), offerOf("primes", "v2")))
	require.Equal(t, "bg_2", claimUpTo(t, old, 10, everything))
	require.NoError(t, old.Offer(t.Context(), offerOf("primes", "v3")))
	_, err := old.Start(t.Context(), "bg_2")
	require.NoError(t, err, "what it has claimed stays its own")

	queueVersion(t, old, "bg_3", "v3")
	require.Empty(t, claimUpTo(t, other, 10, everything))
	require.NoError(t, other.Offer(t.Context(), engine.Offer{}))
	require.Equal(t, "bg_3", claimUpTo(t, other, 10, everything), "it takes everything")

	require.NoError(t, old.Leave(t.Context()))
	require.ErrorIs(t, old.Offer(t.Context(), engine.Offer{}), engine.ErrFenced)
}

// offersWanted: which runs want a particular version.
func offersWanted(t *testing.T, e *store) {
	w := joined(t, e, engine.WorkerInfo{TTL: forever, Offer: offerOf("primes", "v2")})
	joined(t, e, engine.WorkerInfo{TTL: forever, Offer: offerOf("primes", "v1")})
	put(t, e, newSchedule("sc_a", "s"))
	scheduled := func(r *engine.Run) { r.Schedule, r.Origin = "sc_a", engine.OriginScheduled }

	queueVersion(t, w, "bg_fired", "v1", scheduled)
	require.Equal(t, "bg_fired", claimUpTo(t, w, 10, everything), "a schedule takes any version")
	_, err := w.Start(t.Context(), "bg_fired")
	require.NoError(t, err)
	require.NoError(t, w.Requeue(t.Context(), "bg_fired", 1))
	require.Empty(t, claimUpTo(t, w, 10, everything), "but its attempts have one")
	require.Equal(t, "bg_fired", claimUpTo(t, e.worker, 10, everything))

	lease, err := e.worker.Start(t.Context(), "bg_fired")
	require.NoError(t, err)
	_, err = lease.Suspend(t.Context(), engine.Suspension{State: []byte("so far"), Wake: time.Now().Add(time.Second)})
	require.NoError(t, err)
	time.Sleep(2 * time.Second)
	_, _, err = w.Wake(t.Context(), time.Now(), 10)
	require.NoError(t, err)
	require.Equal(t, "bg_fired", claimUpTo(t, w, 10, everything), "a state is of a version that was kept")
}

// offersPatience: a run that nobody offers any more is claimed in the end, by a worker that reports
// that.
func offersPatience(t *testing.T, e *store) {
	const patience = time.Minute
	require.NoError(t, e.worker.Leave(t.Context())) // this worker would take every run
	join := func(ttl time.Duration, version string) engine.Worker {
		return joined(t, e, engine.WorkerInfo{TTL: ttl, Patience: patience, Offer: offerOf("primes", version)})
	}
	w := join(forever, "v2")
	after := func(d time.Duration) string {
		time.Sleep(d)
		return claimUpTo(t, w, 10, everything)
	}

	queueVersion(t, w, "bg_never", "v0")
	require.Empty(t, after(patience-time.Second), "somebody may come who offers it")
	require.Equal(t, "bg_never", after(2*time.Second))

	left := join(forever, "v1")
	queueVersion(t, w, "bg_left", "v1")
	require.Empty(t, after(2*patience), "somebody offers it, and may have no place")
	_, err := left.Renew(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, left.Leave(t.Context()))
	_, err = e.Prune(t.Context(), engine.Retention{})
	require.NoError(t, err)
	require.Empty(t, after(patience-time.Second))
	require.Equal(t, "bg_left", after(2*time.Second))

	join(engine.DefaultTTL, "v1")
	queueVersion(t, w, "bg_dead", "v1")
	require.Empty(t, after(engine.DefaultTTL+patience-time.Second))
	require.Equal(t, "bg_dead", after(2*time.Second))

	changed := join(forever, "v1")
	queueVersion(t, w, "bg_changed", "v1")
	time.Sleep(2 * patience)
	require.NoError(t, changed.Offer(t.Context(), offerOf("primes", "v2")))
	require.Empty(t, after(patience-time.Second))
	require.Equal(t, "bg_changed", after(2*time.Second))
}

func workerStates(t *testing.T, e *store) {
	w := e.worker
	states := func() []engine.WorkerState {
		t.Helper()
		states, err := e.Workers(t.Context())
		require.NoError(t, err)
		return states
	}
	first := states()
	require.Len(t, first, 1)
	require.NotEmpty(t, first[0].ID)
	require.WithinDuration(t, time.Now(), first[0].Since, 0)
	require.Equal(t, forever, first[0].TTL)
	require.True(t, first[0].Live)
	require.Nil(t, first[0].Offer.Tools)
	require.Nil(t, first[0].Offer.About)

	offer := offerOf("primes", "v1")
	offer.About = json.RawMessage(`{"name":"a"}`)
	require.NoError(t, w.Offer(t.Context(), offer))
	submit(t, e, "bg_a", "s")
	submit(t, e, "bg_b", "s")
	started(t, e, "bg_b")
	time.Sleep(time.Second)
	_, err := w.Renew(t.Context(), map[string]engine.Beat{"bg_b": {}})
	require.NoError(t, err)

	now := states()[0]
	require.Equal(t, map[string]string{"primes": "v1"}, now.Offer.Tools)
	require.JSONEq(t, `{"name":"a"}`, string(now.Offer.About))
	require.WithinDuration(t, first[0].Since, now.Since, 0)
	require.WithinDuration(t, first[0].Since.Add(time.Second), now.RenewedAt, 0)
	require.Equal(t, []int{1, 1}, []int{now.Claimed, now.Running})

	require.NoError(t, w.Offer(t.Context(), engine.Offer{Tools: map[string]string{}}))
	require.Equal(t, map[string]string{}, states()[0].Offer.Tools)
	require.NoError(t, w.Leave(context.Background()))
	require.Empty(t, states())

	e.mortal(t)
	time.Sleep(engine.DefaultTTL)
	dead := states()
	require.Len(t, dead, 1)
	require.False(t, dead[0].Live)
	require.NotEqual(t, first[0].ID, dead[0].ID)
}

// permitsQueue: runs in the queue count against the permits for new ones.
func permitsQueue(t *testing.T, e *store) {
	p := engine.Permits{Session: 2, Owner: 3, Queue: true}
	limit(t, e, 1<<30, 1<<30) // sessions with the same first letter have one owner
	submit := func(id, session string) error { return e.worker.Submit(t.Context(), newRun(id, session), &p) }

	held := newRun("bg_held", "s1")
	held.Held = "approval"
	require.NoError(t, e.worker.Submit(t.Context(), held, nil))
	require.NoError(t, submit("bg_1", "s1"))
	require.NoError(t, submit("bg_2", "s1"))
	require.ErrorIs(t, submit("bg_3", "s1"), engine.ErrSessionLimit)
	require.NoError(t, submit("bg_4", "s2"))
	require.ErrorIs(t, submit("bg_5", "s2"), engine.ErrOwnerLimit)
	require.Equal(t, "bg_1 bg_2 bg_4", claimUpTo(t, e.worker, 10, engine.Permits{Session: 2, Owner: 3}))
	require.ErrorIs(t, submit("bg_3", "s1"), engine.ErrSessionLimit)

	won := race(20, func(i int) error { return submit(fmt.Sprintf("bg_r%d", i), "r") })
	require.Equal(t, 2, won)
}
