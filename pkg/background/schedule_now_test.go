package background

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A schedule can be fired on request, and still fires when it is due as if nothing had
// happened.
func TestFire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo", Args: []byte(`{"n":1}`)}, Cron: "0 * * * *"})
		time.Sleep(10 * time.Minute)

		run, err := m.Fire(t.Context(), alice, s.ID, "operator")
		require.NoError(t, err)
		require.Equal(t, []any{s.ID, "operator", engine.OriginScheduled}, []any{run.Schedule, run.By, run.Origin})
		synctest.Wait()
		run = payload(t, m.engine, run.ID)
		require.Equal(t, engine.StatusSucceeded, run.Status)
		require.JSONEq(t, `{"n":1}`, string(run.Args))
		after := reread(t, m, s)
		require.Equal(t, 1, after.Fired)
		require.Equal(t, run.ID, after.LastRun)
		require.Equal(t, s.NextAt, after.NextAt, "its next time stays")

		time.Sleep(50 * time.Minute)
		synctest.Wait()
		require.Len(t, firings(t, m, s), 2)
		require.Equal(t, 2, reread(t, m, s).Fired)

		_, err = m.Unschedule(t.Context(), alice, s.ID)
		require.NoError(t, err)
		_, err = m.Fire(t.Context(), alice, s.ID, "")
		require.NoError(t, err, "also a disabled one")
		require.False(t, reread(t, m, s).Enabled)

		_, err = m.Fire(t.Context(), bob, s.ID, "")
		require.ErrorIs(t, err, ErrNoSchedule)
		require.NoError(t, m.Close(t.Context()))
		_, err = m.Fire(t.Context(), alice, s.ID, "")
		require.ErrorIs(t, err, ErrClosed)
	})
}

// The schedule's overlap policy also applies to firings on request.
func TestFireOverlap(t *testing.T) {
	for overlap, first := range map[engine.Overlap]engine.Status{
		engine.OverlapSkip: engine.StatusRunning, engine.OverlapQueue: engine.StatusRunning, engine.OverlapCancel: engine.StatusCanceled,
	} {
		bubble(t, string(overlap), func(t *testing.T) {
			m := newManager(t, Config{})
			s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "sleep", Timeout: time.Hour}, Cron: "0 0 * * *", Overlap: overlap})
			one, err := m.Fire(t.Context(), alice, s.ID, "")
			require.NoError(t, err)
			time.Sleep(time.Second)

			two, err := m.Fire(t.Context(), alice, s.ID, "")
			if overlap == engine.OverlapSkip {
				require.ErrorIs(t, err, ErrOverlap)
				require.Equal(t, 1, reread(t, m, s).Fired)
				return
			}
			require.NoError(t, err)
			require.NotEqual(t, one.ID, two.ID)
			time.Sleep(time.Minute)
			require.Equal(t, first, must(m.Get(t.Context(), alice, one.ID)).Status)
			_, err = m.Stop(t.Context(), alice, two.ID, StopRequest{Force: true})
			require.NoError(t, err)
		})
	}
}

func TestEnable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{Schedules: 1})
		s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *"})
		_, err := m.Unschedule(t.Context(), alice, s.ID)
		require.NoError(t, err)
		time.Sleep(5*time.Hour + time.Minute)

		enabled, err := m.Enable(t.Context(), alice, s.ID)
		require.NoError(t, err)
		require.Equal(t, []any{true, "", 0}, []any{enabled.Enabled, enabled.Disabled, enabled.Rejected})
		require.Equal(t, s.NextAt.Add(5*time.Hour), enabled.NextAt, "what was missed is not caught up")
		again, err := m.Enable(t.Context(), alice, s.ID)
		require.NoError(t, err)
		require.Equal(t, enabled, again)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, firings(t, m, s), 1)

		_, err = m.Unschedule(t.Context(), alice, s.ID)
		require.NoError(t, err)
		newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *"})
		_, err = m.Enable(t.Context(), alice, s.ID)
		require.ErrorIs(t, err, engine.ErrScheduleLimit)
		require.False(t, reread(t, m, s).Enabled)
		_, err = m.Enable(t.Context(), bob, s.ID)
		require.ErrorIs(t, err, ErrNoSchedule)
	})
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, At: time.Now().Add(time.Hour)})
		_, err := m.Unschedule(t.Context(), alice, s.ID)
		require.NoError(t, err)
		enabled, err := m.Enable(t.Context(), alice, s.ID)
		require.NoError(t, err)
		require.Equal(t, s.At, enabled.NextAt)
		time.Sleep(2 * time.Hour)
		_, err = m.Enable(t.Context(), alice, s.ID)
		require.ErrorIs(t, err, ErrInvalid, "its only time has passed")
	})
}
