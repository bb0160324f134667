package enginetest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

const kilo = 1 << 10

// big returns JSON of n bytes.
func big(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n-2) + `"`) }

// limit sets the quota. Sessions with the same first letter have one owner.
func limit(t *testing.T, e *store, most, each int64) {
	t.Helper()
	owner := func(session string) string { return session[:1] }
	e.join(t, engine.WorkerInfo{TTL: forever, Quota: engine.Quota{Max: most, Each: each, Owner: owner}})
}

// submitBig submits a run whose record takes 100 KiB.
func submitBig(t *testing.T, e *store, id, session string) error {
	t.Helper()
	run := newRun(id, session)
	run.Args = big(100*kilo - engine.RecordOverhead)
	return e.Submit(t.Context(), run)
}

// endBig submits a run whose record takes just over 100 KiB, and ends it.
func endBig(t *testing.T, e *store, id, session string, told bool) {
	t.Helper()
	require.NoError(t, submitBig(t, e, id, session), id)
	complete(t, started(t, e, id), engine.StatusSucceeded)
	if told {
		require.NoError(t, e.Acknowledge(t.Context(), session, []string{id}))
	}
	time.Sleep(time.Second)
}

// left returns the runs that still exist.
func left(t *testing.T, e *store) string {
	t.Helper()
	runs, err := e.List(t.Context(), engine.Query{})
	require.NoError(t, err)
	slices.Reverse(runs)
	return strings.ReplaceAll(ids(runs), "bg_", "")
}

// recordsCounted compares the running count with one from scratch, after every
// kind of change.
func recordsCounted(t *testing.T, e *store) {
	require.Zero(t, e.Recorded())
	limit(t, e, 4<<20, 3<<20)
	rnd := rand.New(rand.NewPCG(1, 2))
	leases := map[string]engine.Lease{}
	sessions := []string{"a", "ab", "b", "c"}
	for i := range 800 {
		session := sessions[rnd.IntN(len(sessions))]
		id := fmt.Sprintf("%s_%d", session, i)
		runs, err := e.List(t.Context(), engine.Query{Session: session})
		require.NoError(t, err)
		var some engine.Run
		if len(runs) > 0 {
			some = runs[rnd.IntN(len(runs))]
		}
		switch rnd.IntN(10) {
		case 0, 1:
			run := newRun(id, session)
			run.Args, run.SignalOnCompletion = big(2+rnd.IntN(300*kilo)), rnd.IntN(2) == 0
			_ = e.Submit(t.Context(), run)
		case 2:
			if l, err := e.Adopt(t.Context(), newRun(id, session)); err == nil {
				leases[id] = l
			}
		case 3:
			if l, err := e.Start(t.Context(), some.ID); err == nil {
				leases[some.ID] = l
			}
		case 4:
			_ = e.Requeue(t.Context(), some.ID, some.Attempt)
		case 5:
			if l := leases[some.ID]; l != nil {
				_ = l.Save(t.Context(), big(2+rnd.IntN(100*kilo)))
				_ = l.Append(t.Context(), 0, []byte("a line of output\n"))
			}
		case 6:
			if l := leases[some.ID]; l != nil {
				end := engine.End{Result: big(2 + rnd.IntN(200*kilo)), Content: big(2 + rnd.IntN(100*kilo)), FinishedAt: time.Now()}
				_, _ = l.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, end)
			}
		case 7:
			_ = e.Acknowledge(t.Context(), session, []string{some.ID})
			_, _ = e.Cancel(t.Context(), some.ID, engine.Cancellation{At: time.Now()})
		case 8:
			s := newSchedule(id, session)
			s.Args = big(2 + rnd.IntN(100*kilo))
			if s, err := e.PutSchedule(t.Context(), s, manySchedules); err == nil {
				s.Enabled = rnd.IntN(3) == 0
				s.Fired++
				put(t, e, s)
			}
		case 9:
			_, err := e.Prune(t.Context(), engine.Retention{Keep: 10, Notices: time.Now().Add(-time.Minute)})
			require.NoError(t, err)
		}
		counted := e.Recorded()
		if i%4 == 0 {
			limit(t, e, 4<<20, 3<<20)
			_ = orphans(t, e.worker)
		}
		require.Equal(t, e.Recorded(), counted, "step %d", i)
		time.Sleep(time.Second)
	}
	_, err := e.Prune(t.Context(), engine.Retention{Before: time.Now().Add(time.Hour), Notices: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	active, err := e.List(t.Context(), engine.Query{Active: true})
	require.NoError(t, err)
	_, err = e.worker.Claim(t.Context(), 1000, everything)
	require.NoError(t, err)
	for _, run := range active {
		_, err := e.Abandon(t.Context(), run.ID, run.Attempt, engine.StatusFailed, engine.Beat{}, engine.End{FinishedAt: time.Now()})
		require.NoError(t, err)
	}
	all, err := e.Schedules(t.Context(), "", true)
	require.NoError(t, err)
	for _, s := range all {
		s.Enabled = false
		put(t, e, s)
	}
	_, err = e.Prune(t.Context(), engine.Retention{Before: time.Now().Add(time.Hour), Notices: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.Zero(t, e.Recorded(), "nothing is left")
}

func recordsMakeRoom(t *testing.T, e *store) {
	limit(t, e, 550*kilo, 550*kilo)
	endBig(t, e, "bg_0", "s", false)
	endBig(t, e, "bg_1", "s", true)
	disabled := newSchedule("sc_a", "s")
	disabled.Args = big(60 * kilo)
	disabled = put(t, e, disabled)
	disabled.Enabled = false
	put(t, e, disabled)
	time.Sleep(time.Second)
	require.NoError(t, submitBig(t, e, "bg_2", "s"))
	endBig(t, e, "bg_3", "s", true)
	require.Equal(t, "0 1 2 3", left(t, e))
	require.NoError(t, submitBig(t, e, "bg_4", "s"))
	require.Equal(t, "0 2 3 4", left(t, e), "the oldest that was told, and not the one that was not")
	require.ErrorIs(t, submitBig(t, e, "bg_4", "s"), engine.ErrExists)
	require.Equal(t, "0 2 3 4", left(t, e), "nothing goes for one that is refused")
	watched := e.Watch(t.Context(), "s")
	_, err := e.Adopt(t.Context(), newRun("bg_5", "s"))
	require.NoError(t, err)
	require.NoError(t, submitBig(t, e, "bg_6", "s"))
	require.Equal(t, "0 2 3 4 5 6", left(t, e))
	_, err = e.GetSchedule(t.Context(), "sc_a")
	require.ErrorIs(t, err, engine.ErrNotFound, "a disabled schedule goes in its turn")
	require.Equal(t, engine.EventStarted, (<-watched).Kind)
	require.Equal(t, engine.EventPurged, (<-watched).Kind)
	s := newSchedule("sc_b", "s")
	s.Args = big(40 * kilo)
	put(t, e, s)
	require.Equal(t, "0 2 4 5 6", left(t, e), "for a schedule too")
	require.LessOrEqual(t, e.Recorded(), int64(550*kilo))
}

func recordsOfMost(t *testing.T, e *store) {
	limit(t, e, 1060*kilo, 1060*kilo)
	for i := range 2 {
		endBig(t, e, fmt.Sprintf("bg_s%d", i), "s", true)
	}

	for i := range 6 {
		endBig(t, e, fmt.Sprintf("bg_m%d", i), "many", true)
	}

	for i := range 2 {
		endBig(t, e, fmt.Sprintf("bg_n%d", i), "new", true)
	}
	require.NoError(t, submitBig(t, e, "bg_n2", "new"))
	require.Equal(t, "s0 s1 m1 m2 m3 m4 m5 n0 n1 n2", left(t, e), "of the one with most, not the oldest of all")
	require.NoError(t, submitBig(t, e, "bg_m6", "many"))
	require.Equal(t, "s0 s1 m2 m3 m4 m5 n0 n1 n2 m6", left(t, e), "the one with most pays itself")
	for i := range 4 {
		require.NoError(t, submitBig(t, e, fmt.Sprintf("bg_m%d", i+7), "many"), i)
	}
	require.Equal(t, "s0 s1 n0 n1 n2 m6 m7 m8 m9 m10", left(t, e))
	err := submitBig(t, e, "bg_m11", "many")
	require.ErrorIs(t, err, engine.ErrRecordLimit, "never at the expense of those with less")
	require.Equal(t, "s0 s1 n0 n1 n2 m6 m7 m8 m9 m10", left(t, e))
	require.NoError(t, submitBig(t, e, "bg_s2", "s"))
	require.Equal(t, "s0 s1 n1 n2 m6 m7 m8 m9 m10 s2", left(t, e), "of the next one, where the first has none that may go")
}

func recordsOfOwner(t *testing.T, e *store) {
	limit(t, e, 1000*kilo, 490*kilo)
	for i := range 4 { // their ends make no notices
		endBig(t, e, fmt.Sprintf("bg_u%d", i), fmt.Sprintf("u/%d", i), false)
	}

	var limited *engine.LimitError
	require.ErrorAs(t, submitBig(t, e, "bg_u4", "u/x"), &limited)
	require.ErrorIs(t, limited, engine.ErrRecordLimit)
	require.Equal(t, 490*kilo, limited.Max)
	require.NoError(t, e.Submit(t.Context(), newRun("bg_u5", "u/x")), "a small one finds room")
	l := started(t, e, "bg_u5")
	require.NoError(t, l.Save(t.Context(), big(300*kilo)))
	_, err := l.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{Result: big(700 * kilo), FinishedAt: time.Now()})
	require.NoError(t, err, "an end is always stored")
	require.Greater(t, e.Recorded(), int64(1000*kilo))
	for i := range 4 {
		endBig(t, e, fmt.Sprintf("bg_v%d", i), "v", true)
	}
	require.Equal(t, "u0 u1 u2 u3 u5 v0 v1 v2 v3", left(t, e), "what one has beyond its part is not at the expense of others")
	require.NoError(t, e.Acknowledge(t.Context(), "u/x", []string{"bg_u5"}))
	require.NoError(t, submitBig(t, e, "bg_v4", "v"))
	require.NoError(t, e.Submit(t.Context(), newRun("bg_u6", "u/y")), "the one that was told goes")
	require.ErrorIs(t, get1(t, e, "bg_u5"), engine.ErrNotFound)
}

func get1(t *testing.T, e *store, id string) error {
	t.Helper()
	_, err := e.Get(t.Context(), id)
	return err
}

func recordsFull(t *testing.T, e *store) {
	limit(t, e, 240*kilo, 240*kilo)
	for _, id := range []string{"bg_0", "bg_1"} {
		endBig(t, e, id, "s", false)
	}
	refused := func(err error) {
		t.Helper()
		var limited *engine.LimitError
		require.ErrorAs(t, err, &limited)
		require.ErrorIs(t, limited, engine.ErrRecordLimit)
		require.Equal(t, 240*kilo, limited.Max)
		require.Empty(t, limited.Active)
	}
	before := e.Recorded()
	refused(submitBig(t, e, "bg_2", "s"))
	run := newRun("bg_3", "other")
	run.Args = big(60 * kilo)
	_, err := e.Adopt(t.Context(), run)
	refused(err)
	s := newSchedule("sc_a", "s")
	s.Args = big(60 * kilo)
	_, err = e.PutSchedule(t.Context(), s, manySchedules)
	refused(err)
	require.Equal(t, "0 1", left(t, e))
	require.Equal(t, before, e.Recorded())
	_, err = e.GetSchedule(t.Context(), "sc_a")
	require.ErrorIs(t, err, engine.ErrNotFound)

	small := put(t, e, newSchedule("sc_b", "s"))
	require.NoError(t, e.Submit(t.Context(), newRun("bg_4", "s")))
	refused(e.Submit(t.Context(), newRun("bg_5", "s")))
	small.Args = big(100 * kilo)
	small = put(t, e, small)
	small.Fired++
	put(t, e, small) // an existing value can always be changed
	complete(t, started(t, e, "bg_4"), engine.StatusFailed)
	require.NoError(t, e.Acknowledge(t.Context(), "s", []string{"bg_0", "bg_1", "bg_4"}))
	require.NoError(t, submitBig(t, e, "bg_5", "s"))
	limit(t, e, engine.RecordOverhead, engine.RecordOverhead)
	refusedBy := e.Submit(t.Context(), newRun("bg_6", "s"))
	require.ErrorIs(t, refusedBy, engine.ErrRecordLimit, "larger than the quota")
}

func recordsRace(t *testing.T, e *store) {
	limit(t, e, 1010*kilo, 1010*kilo)
	won := race(50, func(i int) error { return submitBig(t, e, fmt.Sprintf("bg_%d", i), "s") })
	require.Equal(t, 10, won)
	require.LessOrEqual(t, e.Recorded(), int64(1010*kilo))
	runs, err := e.List(t.Context(), engine.Query{})
	require.NoError(t, err)
	for _, run := range runs {
		complete(t, started(t, e, run.ID), engine.StatusSucceeded)
		require.NoError(t, e.Acknowledge(t.Context(), "s", []string{run.ID}))
	}
	won = race(50, func(i int) error { return submitBig(t, e, fmt.Sprintf("bg_more%d", i), "s") })
	require.Equal(t, 10, won)
	require.LessOrEqual(t, e.Recorded(), int64(1010*kilo))
}
