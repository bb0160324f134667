package background

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// Changed limits apply to new runs. Active runs keep the limits that they began with.
func TestReconfigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{PerSession: 2, PerHost: 3, MaxTimeout: time.Hour})
		first := spawn(t, m, alice, "sleep")
		spawn(t, m, alice, "sleep")

		require.NoError(t, m.Reconfigure(func(c *Config) { c.PerSession, c.Timeout, c.OutputCap = 3, time.Minute, 10 }))
		third := spawn(t, m, alice, "sleep")
		require.Equal(t, DefaultTimeout, first.Timeout)
		require.Equal(t, time.Minute, third.Timeout)
		require.Equal(t, 10, third.OutputCap)
		require.Equal(t, DefaultOutputCap, first.OutputCap)

		require.NoError(t, m.Reconfigure(func(c *Config) { c.PerSession, c.PerHost = 1, 1 }))
		require.Len(t, active(t, m, alice), 3, "nothing is stopped")
		_, err := m.Spawn(t.Context(), bob, SpawnRequest{Tool: "echo"})
		require.ErrorIs(t, err, ErrHostLimit)
		require.NoError(t, m.Reconfigure(func(c *Config) { c.PerHost = 0 }))
		require.Equal(t, DefaultPerHost, m.Stats().PerHost)
		require.Equal(t, engine.StatusSucceeded, wait(t, m, bob, spawn(t, m, bob, "echo").ID).Status)
		_, err = m.Spawn(t.Context(), alice, SpawnRequest{Tool: "echo"})
		require.ErrorIs(t, err, engine.ErrSessionLimit)

		_, err = m.Spawn(t.Context(), bob, SpawnRequest{Tool: "echo", Timeout: 2 * time.Hour})
		require.ErrorIs(t, err, ErrInvalid)
		require.NoError(t, m.Reconfigure(func(c *Config) { c.MaxTimeout = 3 * time.Hour }))
		_, err = m.Spawn(t.Context(), bob, SpawnRequest{Tool: "echo", Timeout: 2 * time.Hour})
		require.NoError(t, err)
	})
}

// Runs that wait for a slot start when the number of slots is raised.
func TestReconfigureStartsQueuedRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{PerHost: 1})
		spawn(t, m, alice, "sleep")
		queued := fired(t, m, bob, "sleep", "")
		require.Equal(t, engine.StatusQueued, status(t, m, bob, queued))
		require.NoError(t, m.Reconfigure(func(c *Config) { c.PerHost = 2 }))
		synctest.Wait()
		require.Equal(t, engine.StatusRunning, status(t, m, bob, queued))
	})
}

// Ended runs are kept for as long as the current configuration says.
func TestReconfigureRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{NoticeTTL: time.Minute})
		wait(t, m, alice, spawn(t, m, alice, "echo").ID)
		time.Sleep(time.Hour)
		require.Len(t, ended(t, m, alice), 1)
		require.NoError(t, m.Reconfigure(func(c *Config) { c.Retention = time.Minute }))
		time.Sleep(pruneEvery)
		synctest.Wait()
		require.Empty(t, ended(t, m, alice))
	})
}

// A contradictory configuration changes nothing, and neither does a change of a fixed
// field.
func TestReconfigureRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{PerSession: 2, LeaseTTL: time.Minute})
		before := *m.cfg()
		for _, change := range []func(*Config){
			func(c *Config) { c.PerSession, c.PerHost = 7, -1 },
			func(c *Config) { c.PerSession, c.Timeout, c.MaxTimeout = 7, time.Hour, time.Minute },
			func(c *Config) { c.PerSession, c.EndSession = 7, "some" },
		} {
			require.ErrorIs(t, m.Reconfigure(change), ErrInvalid)
		}
		require.NoError(t, m.Reconfigure(func(c *Config) { c.LeaseTTL, c.RecordQuota, c.Executor = time.Hour, 1, nil }))
		now := *m.cfg()
		require.Equal(t, before.LeaseTTL, now.LeaseTTL)
		require.Equal(t, before.RecordQuota, now.RecordQuota)
		require.Equal(t, 2, now.PerSession)
		require.NotNil(t, now.Executor)
	})
}
