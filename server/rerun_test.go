package server

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/wire"
)

// A run is started again with what it was started with, in its own session.
func TestRerun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo", "vault")
		first, err := s.Session(alice).Spawn(t.Context(), SpawnRequest{Tool: "echo", Args: []byte(`{"n":1}`), Title: "Once more", Silent: true, Timeout: 7 * time.Second})
		require.NoError(t, err)
		synctest.Wait()

		for name, from := range map[string]Session{"its session": s.Session(alice), "the operator": s.AllSessions()} {
			run, err := from.Rerun(t.Context(), first.TaskID, "operator")
			require.NoError(t, err, name)
			synctest.Wait()
			run, err = s.Session(alice).WholeRun(t.Context(), run.TaskID)
			require.NoError(t, err, name)
			require.NotEqual(t, first.TaskID, run.TaskID)
			require.Equal(t, []any{"echo", "Once more", `{"n":1}`, 7.0, false, "operator", wire.OriginSpawned},
				[]any{run.Tool, run.Title, run.Args, run.DeadlineSeconds, run.SignalOnCompletion, run.By, run.Origin}, name)
		}

		_, err = s.Session(bob).Rerun(t.Context(), first.TaskID, "")
		require.Equal(t, wire.CodeNotFound, ReasonOf(err).Code)
		secret, err := s.Session(alice).Spawn(t.Context(), SpawnRequest{Tool: "vault", Args: []byte(`{"deep":{"code":"hunter2"}}`)})
		require.NoError(t, err)
		require.True(t, secret.ArgsIncomplete)
		_, err = s.Session(alice).Rerun(t.Context(), secret.TaskID, "")
		require.ErrorContains(t, err, "its arguments contain a secret")
	})
}

// The operator fires and enables schedules of any session; a session only its own.
func TestFireAndEnable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo", "sleeper")
		made, err := s.Session(alice).Schedules().New(t.Context(), ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "sleeper"}, Cron: "0 0 1 1 *"})
		require.NoError(t, err)
		run, err := s.AllSessions().Schedules().Fire(t.Context(), made.ScheduleID, "operator")
		require.NoError(t, err)
		require.Equal(t, []any{alice, made.ScheduleID, "operator"}, []any{run.Session, run.ScheduleID, run.By})
		time.Sleep(time.Second)
		_, err = s.Session(alice).Schedules().Fire(t.Context(), made.ScheduleID, "")
		require.Equal(t, wire.CodeConflict, ReasonOf(err).Code, "its run is active")

		_, err = s.AllSessions().Schedules().Disable(t.Context(), made.ScheduleID)
		require.NoError(t, err)
		enabled, err := s.AllSessions().Schedules().Enable(t.Context(), made.ScheduleID)
		require.NoError(t, err)
		require.True(t, enabled.Enabled)

		for _, err := range []error{
			second(s.Session(bob).Schedules().Fire(t.Context(), made.ScheduleID, "")), second(s.Session(bob).Schedules().Enable(t.Context(), made.ScheduleID)),
			second(s.AllSessions().Schedules().Fire(t.Context(), "nonsense", "")), second(s.AllSessions().Schedules().Enable(t.Context(), "nonsense")),
		} {
			require.Equal(t, wire.CodeNotFound, ReasonOf(err).Code)
		}
	})
}

func second[T any](_ T, err error) error { return err }
