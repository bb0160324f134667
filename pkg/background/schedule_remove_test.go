package background

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/pkg/background/output"
)

func TestRemoveSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "sleep", Timeout: time.Hour}, Cron: "*/20 * * * *", Overlap: engine.OverlapQueue})
		time.Sleep(41 * time.Minute)
		require.Len(t, firings(t, m, s), 2, "one runs, and one waits")

		_, err := m.RemoveSchedule(t.Context(), bob, s.ID)
		require.ErrorIs(t, err, ErrNoSchedule, "it is not his")
		require.Equal(t, 2, reread(t, m, s).Fired)
		removed, err := m.RemoveSchedule(t.Context(), alice, s.ID)
		require.NoError(t, err)
		require.Equal(t, []any{s.ID, "*/20 * * * *", true, 2}, []any{removed.ID, removed.Cron, removed.Enabled, removed.Fired}, "as it was")

		for name, gone := range map[string]func() error{
			"remove":  func() error { _, err := m.RemoveSchedule(t.Context(), alice, s.ID); return err },
			"get":     func() error { _, err := m.GetSchedule(t.Context(), alice, s.ID); return err },
			"fire":    func() error { _, err := m.Fire(t.Context(), alice, s.ID, ""); return err },
			"enable":  func() error { _, err := m.Enable(t.Context(), alice, s.ID); return err },
			"disable": func() error { _, err := m.Unschedule(t.Context(), alice, s.ID); return err },
		} {
			require.ErrorIs(t, gone(), ErrNoSchedule, name)
		}

		time.Sleep(24 * time.Hour)
		runs := firings(t, m, s)
		require.Len(t, runs, 2, "its runs stay, and name it")
		for _, run := range runs {
			require.True(t, run.Status.Terminal())
			require.Equal(t, s.ID, run.Schedule)
		}
		require.Zero(t, planned(m))
	})
}

// A schedule that is removed while it is being fired starts no run, whether it is due or
// fired by hand.
func TestRemoveScheduleAsItFires(t *testing.T) {
	for name, fire := range map[string]func(t *testing.T, m *Manager, id string){
		"due": func(*testing.T, *Manager, string) { time.Sleep(time.Hour); synctest.Wait() },
		"by hand": func(t *testing.T, m *Manager, id string) {
			_, err := m.Fire(t.Context(), alice, id, "")
			require.ErrorIs(t, err, ErrNoSchedule)
		},
	} {
		bubble(t, name, func(t *testing.T) {
			var doomed atomic.Pointer[string] // the schedule that goes as it fires
			var removed atomic.Int64
			var store *hookEngine
			store = hooked(func(method string) error {
				if id := doomed.Load(); id != nil && method == "submit" { // the firing is about to be stored
					removed.Add(1)
					return store.RemoveSchedule(t.Context(), *id)
				}
				return nil
			})
			m := newManager(t, Config{Engine: store})
			s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *"})
			synctest.Wait()
			doomed.Store(&s.ID)

			fire(t, m, s.ID)
			require.EqualValues(t, 1, removed.Load(), "it is not tried again")
			doomed.Store(nil)
			time.Sleep(24 * time.Hour)
			require.Empty(t, firings(t, m, s))
			require.Zero(t, planned(m))
		})
	}
}

// A run that was stored before its schedule was removed is kept, even if the firing can
// no longer be recorded.
func TestRemoveScheduleThatHasFired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m *Manager
		m = newManager(t, Config{Engine: &meanwhile{memory.New(), func(s engine.Schedule) {
			_, err := m.RemoveSchedule(t.Context(), alice, s.ID)
			require.NoError(t, err)
		}}})
		s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *"})
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		runs := firings(t, m, s)
		require.Len(t, runs, 1)
		require.Equal(t, engine.StatusSucceeded, runs[0].Status)
		_, err := m.GetSchedule(t.Context(), alice, s.ID)
		require.ErrorIs(t, err, ErrNoSchedule)
	})
}

// A schedule that one manager has removed is not fired by another manager on the same
// engine.
func TestRemoveScheduleOnAnotherHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		var executed atomic.Int32
		cfg := Config{Engine: store, Executor: func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			executed.Add(1)
			return Outcome{}, nil
		}}
		first, second := newManager(t, cfg), newManager(t, cfg)
		s := newSchedule(t, first, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "* * * * *"})
		time.Sleep(3*time.Minute + time.Second)
		require.EqualValues(t, 3, executed.Load())

		_, err := second.RemoveSchedule(t.Context(), alice, s.ID)
		require.NoError(t, err)
		_, err = first.RemoveSchedule(t.Context(), alice, s.ID)
		require.ErrorIs(t, err, ErrNoSchedule)
		time.Sleep(time.Hour)
		require.EqualValues(t, 3, executed.Load())
		require.Len(t, firings(t, first, s), 3)
	})
}
