package server

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/wire"
)

// A run says what it used so far, spawned or parked, and in the end all it used.
func TestCostWhileItRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{ParkAfter: time.Second}, "sleeper")
		for _, id := range []string{s.spawn(alice, "sleeper", "{}"), s.park(alice, "sleeper", "{}")} {
			synctest.Wait()
			run, err := s.Session(alice).Run(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, wire.StatusRunning, run.Status)
			require.Positive(t, run.Cost.Fuel)
			require.Positive(t, run.Cost.MemoryPeak)
			_, err = s.Session(alice).Stop(t.Context(), id, "", wire.Stop{Force: true})
			require.NoError(t, err)
			synctest.Wait()
			ended, err := s.Session(alice).Run(t.Context(), id)
			require.NoError(t, err)
			require.True(t, ended.Done)
			require.GreaterOrEqual(t, ended.Cost.Fuel, run.Cost.Fuel)
			require.Equal(t, run.Cost.MemoryPeak, ended.Cost.MemoryPeak)
		}
	})
}

// A run says what its tool is part of, and what it cost, however it began.
func TestRunSaysWhatItIs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{ParkAfter: time.Second}, "echo", "chatty", "traps")
		spawned, parked, broken := s.spawn(alice, "echo", "{}"), s.park(alice, "chatty", "{}"), s.spawn(alice, "traps", "{}")
		s.schedule(alice, "echo", "{}", `{"scheduled_at":"2000-01-01T00:01:00Z"}`)
		time.Sleep(2 * time.Minute)
		synctest.Wait()

		runs, err := s.AllSessions().Runs(t.Context(), RunQuery{})
		require.NoError(t, err)
		require.Len(t, runs, 4)
		for _, run := range runs {
			require.Equal(t, []string{"wasm", run.Tool, "1.0.0"}, []string{run.Kind, run.Plugin, run.PluginVersion}, run.Origin)
			require.Positive(t, run.Cost.Fuel)
			require.Positive(t, run.Cost.MemoryPeak)
			require.Nil(t, run.Diagnosis)
		}

		for id, reason := range map[string]string{spawned: "", parked: "", broken: "the plugin crashed: unreachable"} {
			why, err := s.Session(alice).Diagnosis(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, reason != "", why != nil)
			if why != nil {
				require.Equal(t, reason, why.Reason)
				require.NotEmpty(t, why.Trace)
			}
			_, err = s.Session("bob").Diagnosis(t.Context(), id)
			require.Equal(t, wire.CodeNotFound, ReasonOf(err).Code)
		}

		notices := s.notices(alice)
		require.Len(t, notices, 4)
		require.Empty(t, notices[0].LogPath, "there is no folder")

		schedules, err := s.Session(alice).Schedules().List(t.Context())
		require.NoError(t, err)
		require.Equal(t, "once", schedules[0].Type)
	})
}
