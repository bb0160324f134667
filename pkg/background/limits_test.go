package background

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
)

func TestSessionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		var ids []string
		for range 5 {
			ids = append(ids, spawn(t, m, alice, "sleep").ID)
		}
		_, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "echo"})
		var limit *engine.LimitError
		require.ErrorAs(t, err, &limit)
		require.ErrorIs(t, err, engine.ErrSessionLimit)
		require.NotErrorIs(t, err, ErrHostLimit)
		require.Equal(t, 5, limit.Max)
		require.ElementsMatch(t, ids, limit.Active)
		require.Contains(t, err.Error(), ids[3])
		require.Len(t, active(t, m, alice), 5)
		require.Empty(t, ended(t, m, alice), "a refused spawn leaves no record")

		require.Equal(t, engine.StatusSucceeded, wait(t, m, bob, spawn(t, m, bob, "echo").ID).Status, "another session has its own")
		_, err = m.Stop(t.Context(), alice, ids[0], StopRequest{})
		require.NoError(t, err)
		spawn(t, m, alice, "echo") // who saw the end can spawn again at once
	})
}

func TestHostLimitComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{PerSession: 2, PerHost: 3})
		spawn(t, m, alice, "sleep")
		spawn(t, m, alice, "sleep")
		_, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "echo"})
		require.ErrorIs(t, err, engine.ErrSessionLimit)
		require.Equal(t, 2, m.admission.active(), "the host's permit was given back")
		spawn(t, m, bob, "sleep")
		for _, session := range []string{alice, bob, "carol"} {
			_, err := m.Spawn(t.Context(), session, SpawnRequest{Tool: "echo"})
			require.ErrorIs(t, err, ErrHostLimit)
			require.NotContains(t, err.Error(), "bg_", "ids of other sessions are not told")
		}
	})
}

// The sessions of one owner share a limit, however their runs are started, and the
// sessions of other owners are not affected.
func TestOwnerLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{PerSession: 2, PerOwner: 3, PerHost: 5, Owner: func(session string) string { return session[:1] }})
		ids := []string{spawn(t, m, "a1", "sleep").ID, spawn(t, m, "a1", "sleep").ID, spawn(t, m, "a2", "second").ID}
		for _, session := range []string{"a2", "a3"} {
			_, err := m.Spawn(t.Context(), session, SpawnRequest{Tool: "echo"})
			require.ErrorIs(t, err, engine.ErrOwnerLimit)
		}
		queued := fired(t, m, "a3", "second", "")
		require.Equal(t, engine.StatusQueued, status(t, m, "a3", queued), "the host has places")
		spawn(t, m, "b1", "sleep")
		require.Equal(t, engine.StatusRunning, status(t, m, "b2", fired(t, m, "b2", "sleep", "")), "it came later")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, engine.StatusRunning, status(t, m, "a3", queued), "the waiting run is first")
		_, err := m.Stop(t.Context(), "a1", ids[0], StopRequest{Force: true})
		require.NoError(t, err)
		spawn(t, m, "a2", "sleep")
	})
}

func TestLastSlotGoesToOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		for range 4 {
			spawn(t, m, alice, "sleep")
		}
		errs := make([]error, 8)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { _, errs[i] = m.Spawn(t.Context(), alice, SpawnRequest{Tool: "sleep"}) })
		}
		all.Wait()
		in := 0
		for _, err := range errs {
			if err == nil {
				in++
			} else {
				require.ErrorIs(t, err, engine.ErrSessionLimit)
			}
		}
		require.Equal(t, 1, in)
		require.Len(t, active(t, m, alice), 5)
	})
}

func TestPermitsComeBackHoweverARunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{PerSession: 1, PerHost: 1, Logger: logTo(new(testlog.Buffer))})
		for range 3 {
			for _, tool := range []string{"echo", "panic", "nonsense", "second", "deaf"} {
				wait(t, m, alice, spawn(t, m, alice, tool).ID)
				require.Zero(t, m.admission.active())
			}
		}
	})
}

// A session that learns that a run has ended can spawn again, even if the engine has
// not confirmed yet that the end is stored.
func TestPermitIsBackWhenTheEndIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{Engine: &hookEngine{Engine: memory.New(), after: func(method string) error {
			if method == "complete" {
				time.Sleep(time.Second)
			}
			return nil
		}}, PerSession: 1})
		for range 2 {
			id := spawned(t, m, alice, "echo")
			require.Equal(t, engine.StatusSucceeded, must(m.Get(t.Context(), alice, id)).Status)
		}
	})
}
