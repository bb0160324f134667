package enginetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

func suspended(t *testing.T, l engine.Lease, s engine.Suspension) engine.Run {
	t.Helper()
	if s.State == nil {
		s.State = []byte("state of " + l.Run().ID)
	}
	run, err := l.Suspend(t.Context(), s)
	require.NoError(t, err)
	return run
}

func wake(t *testing.T, e *store, now time.Time, max int) (woken int, next time.Time) {
	t.Helper()
	woken, next, err := e.worker.Wake(t.Context(), now, max)
	require.NoError(t, err)
	return woken, next
}

// waiting: a waiting run has no worker, and continues its attempt with its state,
// its log and its beat.
func waiting(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	l := started(t, e, "bg_a")
	begun := l.Run().StartedAt
	require.Nil(t, l.State())
	require.NoError(t, l.Append(t.Context(), 0, []byte("one ")))

	until := time.Now().Add(time.Hour)
	run := suspended(t, l, engine.Suspension{Wake: until, Beat: engine.Beat{Detail: "asleep", Cost: engine.Cost{Fuel: 7}}})
	require.Equal(t, engine.StatusWaiting, run.Status)
	require.Equal(t, int64(len("state of bg_a")), run.StateSize)
	require.Equal(t, int64(4), run.StateLog)
	same(t, run, get(t, e, "bg_a"))
	require.Equal(t, "one ", read(t, e, "bg_a"))

	require.ErrorIs(t, l.Append(t.Context(), 4, []byte("late")), engine.ErrFenced)
	require.ErrorIs(t, l.Save(t.Context(), nil), engine.ErrFenced)
	_, err := l.Suspend(t.Context(), engine.Suspension{State: []byte("late")})
	require.ErrorIs(t, err, engine.ErrFenced)
	_, err = e.worker.Start(t.Context(), "bg_a")
	require.ErrorIs(t, err, engine.ErrFenced)
	require.Empty(t, claimUpTo(t, e.worker, 10, everything))
	news, err := e.worker.Renew(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, engine.Renewal{}, news)
	require.ErrorIs(t, e.Remove(t.Context(), "bg_a"), engine.ErrActive)

	time.Sleep(time.Hour)
	woken, next := wake(t, e, time.Now(), 10)
	require.Equal(t, 1, woken)
	require.Zero(t, next)
	require.Equal(t, engine.StatusQueued, get(t, e, "bg_a").Status)

	again := started(t, e, "bg_a")
	require.Equal(t, "state of bg_a", string(again.State()))
	require.Equal(t, 1, again.Run().Attempt)
	require.True(t, begun.Equal(again.Run().StartedAt))
	require.Equal(t, "asleep", again.Run().Detail)
	require.JSONEq(t, `{"limit":10}`, string(again.Run().Args))
	require.ErrorIs(t, l.Append(t.Context(), 4, []byte("late")), engine.ErrFenced, "the lease before, of the same attempt")
	require.NoError(t, again.Append(t.Context(), 4, []byte("two")))
	require.Equal(t, "one two", read(t, e, "bg_a"))
	complete(t, again, engine.StatusSucceeded)
	require.Equal(t, "one two", artifact(t, e, "bg_a", engine.OutputLog))
}

// waitingTimes: runs wake in the order of their times.
func waitingTimes(t *testing.T, e *store) {
	now := time.Now()
	for i, after := range []time.Duration{3, 1, 2, 0} {
		id := fmt.Sprintf("bg_%d", i)
		submit(t, e, id, "s")
		s := engine.Suspension{}
		if after > 0 {
			s.Wake = now.Add(after * time.Hour)
		}
		suspended(t, started(t, e, id), s)
	}

	woken, next := wake(t, e, now, 10)
	require.Zero(t, woken)
	require.True(t, now.Add(time.Hour).Equal(next))
	woken, next = wake(t, e, now.Add(2*time.Hour), 1)
	require.Equal(t, 1, woken)
	require.True(t, now.Add(2*time.Hour).Equal(next))
	require.Equal(t, "bg_1", claimUpTo(t, e.worker, 10, everything))
	woken, _ = wake(t, e, now.Add(100*time.Hour), 10)
	require.Equal(t, 2, woken)
	require.Equal(t, engine.StatusWaiting, get(t, e, "bg_3").Status, "not by time")
}

// waitingChildren: the state and the children are stored in one write, and the end of a child
// wakes its parent.
func waitingChildren(t *testing.T, e *store) {
	permits := engine.Permits{Session: 1}
	submit(t, e, "bg_p", "s")
	s := engine.Suspension{Await: []string{"bg_a", "bg_b"}, Children: []engine.Run{child("bg_a", "bg_p"), child("bg_b", "bg_p")}}
	suspended(t, started(t, e, "bg_p"), s)
	same(t, child("bg_a", "bg_p"), whole(t, e, "bg_a"))
	require.Equal(t, "bg_a", claimUpTo(t, e.worker, 10, permits), "what waits holds no permit")
	complete(t, started(t, e, "bg_a"), engine.StatusSucceeded)

	require.Equal(t, engine.StatusQueued, get(t, e, "bg_p").Status)
	p := started(t, e, "bg_p")
	require.Equal(t, 1, p.Run().Attempt)
	s.Await = s.Await[1:]
	require.Equal(t, engine.StatusWaiting, suspended(t, p, s).Status)
	complete(t, started(t, e, "bg_b"), engine.StatusFailed)

	s.Await = []string{"bg_b"}
	run := suspended(t, started(t, e, "bg_p"), s)
	require.Equal(t, engine.StatusQueued, run.Status, "it has ended already")
	require.True(t, run.Woken)
	complete(t, started(t, e, "bg_p"), engine.StatusSucceeded)
}

// waitingHeld: with Hold the run continues, and a crash returns it to the stored state.
func waitingHeld(t *testing.T, e *store) {
	e.mortal(t)
	submit(t, e, "bg_p", "s")
	l := started(t, e, "bg_p")
	require.NoError(t, l.Append(t.Context(), 0, []byte("before")))
	run := suspended(t, l, engine.Suspension{Hold: true, Children: []engine.Run{child("bg_c", "bg_p")}})
	require.Equal(t, engine.StatusRunning, run.Status)
	require.Equal(t, engine.StatusQueued, get(t, e, "bg_c").Status)
	require.NoError(t, l.Append(t.Context(), 6, []byte(" and after")))

	e.dies(t)
	require.Equal(t, "bg_p", orphans(t, e.worker))
	require.NoError(t, e.Requeue(t.Context(), "bg_p", 1))
	again := started(t, e, "bg_p")
	require.Equal(t, 2, again.Run().Attempt)
	require.Equal(t, "state of bg_p", string(again.State()))
	require.Equal(t, "before", read(t, e, "bg_p"))
	require.NoError(t, again.Append(t.Context(), 6, []byte(" again")))
	complete(t, again, engine.StatusSucceeded)
	require.Equal(t, "before again", artifact(t, e, "bg_p", engine.OutputLog))
}

// waitingLog: a log that dropped bytes is cut like any other.
func waitingLog(t *testing.T, e *store) {
	e.mortal(t)
	submit(t, e, "bg_a", "s")
	l := started(t, e, "bg_a")
	text := strings.Repeat("0123456789", 2*outputCap/10+1)
	require.NoError(t, l.Append(t.Context(), 0, []byte(text)))
	before := read(t, e, "bg_a")
	suspended(t, l, engine.Suspension{Hold: true})
	require.NoError(t, l.Append(t.Context(), int64(len(text)), []byte("more")))

	e.dies(t)
	require.Equal(t, "bg_a", orphans(t, e.worker))
	require.NoError(t, e.Requeue(t.Context(), "bg_a", 1))
	started(t, e, "bg_a")
	require.Equal(t, before, read(t, e, "bg_a"))
	chunk, err := e.Tail(t.Context(), "bg_a", -4, 100)
	require.NoError(t, err)
	require.Equal(t, int64(len(text)), chunk.End)
	require.Equal(t, text[len(text)-4:], string(chunk.Data))
}

// waitingMessages: an unseen message wakes the run.
func waitingMessages(t *testing.T, e *store) {
	mailbox := engine.Scope{Session: "s", Run: "bg_a"}
	send := func() int64 {
		v, err := e.PutValue(t.Context(), mailbox, engine.Value{Data: []byte("{}")}, engine.ValueLimit{Count: 10, Bytes: 1000})
		require.NoError(t, err)
		return v.Version
	}
	submit(t, e, "bg_a", "s")
	l := started(t, e, "bg_a")
	seen := send()
	require.Equal(t, engine.StatusWaiting, suspended(t, l, engine.Suspension{Mail: seen}).Status)
	send()
	require.Equal(t, engine.StatusQueued, get(t, e, "bg_a").Status)
	require.Equal(t, engine.StatusQueued, suspended(t, started(t, e, "bg_a"), engine.Suspension{Mail: seen}).Status, "it came before")
}

// waitingEnds: a stop ends a waiting run, and a run that is being stopped cannot wait.
func waitingEnds(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	suspended(t, started(t, e, "bg_a"), engine.Suspension{})
	run, err := e.Cancel(t.Context(), "bg_a", engine.Cancellation{At: time.Now(), By: "x"})
	require.NoError(t, err)
	require.Equal(t, engine.StatusCanceled, run.Status)
	require.NoError(t, e.Remove(t.Context(), "bg_a"))

	submit(t, e, "bg_b", "s")
	l := started(t, e, "bg_b")
	_, err = e.Cancel(t.Context(), "bg_b", engine.Cancellation{At: time.Now()})
	require.NoError(t, err)
	_, err = l.Suspend(t.Context(), engine.Suspension{State: []byte("x")})
	require.ErrorIs(t, err, engine.ErrStopping)
	complete(t, l, engine.StatusCanceled)
}

// waitingRefused: a suspension that cannot be stored does not change the run.
func waitingRefused(t *testing.T, e *store) {
	e.join(t, engine.WorkerInfo{TTL: forever, Quota: engine.Quota{Max: 3 * engine.RecordOverhead}})
	submit(t, e, "bg_a", "s")
	l := started(t, e, "bg_a")
	for name, s := range map[string]engine.Suspension{
		"no state":         {},
		"a large state":    {State: make([]byte, engine.MaxState+1)},
		"no room":          {State: make([]byte, 3*engine.RecordOverhead)},
		"too many awaited": {State: []byte("x"), Await: make([]string, engine.MaxAwait+1)},
		"not its child":    {State: []byte("x"), Children: []engine.Run{newRun("bg_c", "s")}},
	} {
		_, err := l.Suspend(t.Context(), s)
		require.Error(t, err, name)
		require.Zero(t, get(t, e, "bg_a").StateSize, name)
	}

	require.Equal(t, map[engine.Status]int{engine.StatusRunning: 1}, e.Counts())
	before := e.Recorded()
	suspended(t, l, engine.Suspension{State: make([]byte, 1000), Hold: true})
	require.Equal(t, before+1000, e.Recorded())
	suspended(t, l, engine.Suspension{State: make([]byte, 500), Hold: true})
	require.Equal(t, before+500, e.Recorded())
	run, err := l.Suspend(t.Context(), engine.Suspension{Hold: true})
	require.NoError(t, err)
	require.EqualValues(t, 500, run.StateSize, "that which is stored")
	require.Equal(t, before+500, e.Recorded())
	run, err = l.Suspend(t.Context(), engine.Suspension{Hold: true, Drop: true})
	require.NoError(t, err)
	require.Zero(t, run.StateSize)
	require.Equal(t, before, e.Recorded())
	_, err = l.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{Result: json.RawMessage("1"), FinishedAt: time.Now()})
	require.NoError(t, err)
	require.NoError(t, e.Remove(t.Context(), "bg_a"))
	require.Zero(t, e.Recorded(), "nothing is left")
}

// waitingIdle: an attempt counts as idle unless it stores a state, or ends with a
// checkpoint other than the one it began with.
func waitingIdle(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	attempt := func(do ...func(engine.Lease)) int {
		l := started(t, e, "bg_a")
		for _, f := range do {
			f(l)
		}
		require.NoError(t, e.Requeue(t.Context(), "bg_a", l.Run().Attempt))
		return get(t, e, "bg_a").Idle()
	}
	save := func(text string) func(engine.Lease) {
		return func(l engine.Lease) { require.NoError(t, l.Save(t.Context(), []byte(text))) }
	}
	state := func(l engine.Lease) { suspended(t, l, engine.Suspension{State: []byte("x"), Hold: true}) }
	drop := func(l engine.Lease) {
		_, err := l.Suspend(t.Context(), engine.Suspension{Drop: true, Hold: true})
		require.NoError(t, err)
	}

	require.Equal(t, 1, attempt())
	require.Equal(t, 0, attempt(save("half")))
	require.Equal(t, 1, attempt(save("begun"), save("half")), "it ends where it began")
	require.Equal(t, 0, attempt(save("done")))
	require.Equal(t, 0, attempt(state))
	require.Equal(t, 1, attempt())
	require.Equal(t, 3, attempt(drop), "since the checkpoint")
	require.Equal(t, 7, get(t, e, "bg_a").Attempt)
	require.Equal(t, 5, get(t, e, "bg_a").Begun)
	require.Equal(t, 4, attempt())
	require.Equal(t, 8, get(t, e, "bg_a").Begun)
}

// waitingCalls: the calls of a run are stored with its suspensions and with its end,
// and kept if one of these omits them.
func waitingCalls(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	l := started(t, e, "bg_a")
	called := func() string {
		data, err := e.Payload(t.Context(), "bg_a", engine.PartCalls)
		require.NoError(t, err)
		return string(data)
	}

	_, err := l.Suspend(t.Context(), engine.Suspension{State: []byte("state"), Calls: []byte(`["one"]`), Hold: true})
	require.NoError(t, err)
	require.Equal(t, `["one"]`, called())
	_, err = l.Suspend(t.Context(), engine.Suspension{Drop: true, Hold: true})
	require.NoError(t, err)
	require.Equal(t, `["one"]`, called())
	_, err = l.Suspend(t.Context(), engine.Suspension{State: []byte("state"), Calls: make([]byte, engine.MaxCalls+1)})
	require.ErrorContains(t, err, "invalid calls of 65537 bytes: want at most 65536")

	suspended(t, l, engine.Suspension{Calls: []byte(`["one","two"]`), Wake: time.Now().Add(time.Hour)})
	require.Equal(t, `["one","two"]`, called())
	require.Nil(t, get(t, e, "bg_a").Calls)
	time.Sleep(time.Hour)
	wake(t, e, time.Now(), 1)
	again := started(t, e, "bg_a")
	require.Equal(t, `["one","two"]`, called())

	run, err := again.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{Calls: json.RawMessage(`["all"]`), FinishedAt: time.Now()})
	require.NoError(t, err)
	require.Nil(t, run.Calls)
	require.Equal(t, `["all"]`, called())

	submit(t, e, "bg_b", "s")
	l = started(t, e, "bg_b")
	suspended(t, l, engine.Suspension{Calls: []byte(`["kept"]`)})
	_, err = e.Cancel(t.Context(), "bg_b", engine.Cancellation{At: time.Now(), By: "operator"})
	require.NoError(t, err)
	data, err := e.Payload(t.Context(), "bg_b", engine.PartCalls)
	require.NoError(t, err)
	require.Equal(t, `["kept"]`, string(data))
}
