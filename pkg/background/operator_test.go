package background

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// An operator sees the runs of all sessions, page by page, and running ones in their
// current state.
func TestAllRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		first := wait(t, m, alice, spawn(t, m, alice, "echo").ID)
		second, third := spawned(t, m, bob, "sleep"), spawned(t, m, alice, "sleep")
		for name, c := range map[string]struct {
			q    engine.Query
			want []string
		}{
			"all":                 {engine.Query{}, []string{third, second, first.ID}},
			"a page":              {engine.Query{Limit: 2}, []string{third, second}},
			"the next page":       {engine.Query{Limit: 2, Before: second}, []string{first.ID}},
			"active ones":         {engine.Query{Active: true}, []string{third, second}},
			"those of a session":  {engine.Query{Session: bob}, []string{second}},
			"those of no session": {engine.Query{Session: "nobody"}, nil},
		} {
			runs, err := m.List(t.Context(), c.q)
			require.NoError(t, err, name)
			var ids []string
			for _, run := range runs {
				ids = append(ids, run.ID)
			}
			require.Equal(t, c.want, ids, name)
		}
		for id, session := range map[string]string{first.ID: alice, second: bob} {
			run, err := m.Find(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, session, run.Session)
		}
		_, err := m.Find(t.Context(), "bg_x")
		require.ErrorIs(t, err, engine.ErrNotFound)
	})
}

func TestAllSchedules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		var ids []string
		for _, session := range []string{bob, alice} {
			s, err := m.Schedule(t.Context(), session, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 0 1 1 *"})
			require.NoError(t, err)
			ids = append(ids, s.ID)
		}
		_, err := m.Unschedule(t.Context(), bob, ids[0])
		require.NoError(t, err)
		all, err := m.Schedules(t.Context(), "")
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.Equal(t, ids[1], all[0].ID)
		require.False(t, all[1].Enabled)
		s, err := m.FindSchedule(t.Context(), ids[1])
		require.NoError(t, err)
		require.Equal(t, alice, s.Session)
		_, err = m.FindSchedule(t.Context(), "sc_x")
		require.ErrorIs(t, err, ErrNoSchedule)
	})
}

// The whole log of a run is written in the same form as the file of an ended run.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{OutputCap: 100})
		id := wait(t, m, alice, spawnArgs(t, m, `{"text":"`+strings.Repeat("0123456789", 50)+`"}`)).ID
		log, err := m.Log(t.Context(), alice, id)
		require.NoError(t, err)
		require.Equal(t, 1, log.Attempt)
		var text strings.Builder
		n, err := log.WriteTo(&text)
		require.NoError(t, err)
		require.EqualValues(t, text.Len(), n)
		require.Equal(t, artifact(t, m, alice, id, engine.OutputLog), text.String())
		require.Contains(t, text.String(), " bytes omitted\n")
		_, err = m.Log(t.Context(), bob, id)
		require.ErrorIs(t, err, engine.ErrNotFound)
	})
}

func spawnArgs(t *testing.T, m *Manager, args string) string {
	t.Helper()
	s, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "echo", Args: []byte(args)})
	require.NoError(t, err)
	return s.Run.ID
}
