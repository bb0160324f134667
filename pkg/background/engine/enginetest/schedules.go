package enginetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

const manySchedules = 1000

func newSchedule(id, session string) engine.Schedule {
	return engine.Schedule{
		ID: id, Session: session, Tool: "primes", Args: json.RawMessage(`{"limit":10}`), Terms: json.RawMessage(`{"locale":"de"}`), Title: "Primes", Timeout: time.Minute,
		CreatedAt: time.Now(), Cron: "0 * * * *", Timezone: "UTC", Overlap: engine.OverlapSkip, Enabled: true, NextAt: time.Now().Add(time.Hour),
	}
}

func put(t *testing.T, e *store, s engine.Schedule) engine.Schedule {
	t.Helper()
	stored, err := e.PutSchedule(t.Context(), s, manySchedules)
	require.NoError(t, err)
	return stored
}

func sameSchedule(t *testing.T, want, got engine.Schedule) {
	t.Helper()
	w, err := json.Marshal(want)
	require.NoError(t, err)
	g, err := json.Marshal(got)
	require.NoError(t, err)
	require.JSONEq(t, string(w), string(g))
}

func scheduleIDs(found []engine.Schedule) string {
	var out []string
	for _, s := range found {
		out = append(out, s.ID)
	}
	return strings.Join(out, " ")
}

func schedules(t *testing.T, e *store) {
	for _, c := range []struct{ id, session string }{{"sc_a", "s"}, {"sc_b", "other"}, {"sc_c", "s"}} {
		s := newSchedule(c.id, c.session)
		stored := put(t, e, s)
		require.EqualValues(t, 1, stored.Revision)
		s.Revision = 1
		sameSchedule(t, s, stored)
		got, err := e.GetSchedule(t.Context(), c.id)
		require.NoError(t, err)
		require.JSONEq(t, `{"limit":10}`, string(got.Args))
	}
	b, err := e.GetSchedule(t.Context(), "sc_b")
	require.NoError(t, err)
	b.Enabled, b.Disabled, b.Fired, b.LastRun, b.LastAt, b.NextAt = false, "three rejected", 7, "bg_a", time.Now(), time.Time{}
	stored := put(t, e, b)
	require.EqualValues(t, 2, stored.Revision)
	got, err := e.GetSchedule(t.Context(), "sc_b")
	require.NoError(t, err)
	sameSchedule(t, stored, got)
	for _, c := range []struct {
		session string
		enabled bool
		want    string
	}{
		{"", false, "sc_c sc_b sc_a"}, {"", true, "sc_c sc_a"}, {"s", false, "sc_c sc_a"},
		{"other", false, "sc_b"}, {"other", true, ""}, {"nobody", false, ""},
	} {
		found, err := e.Schedules(t.Context(), c.session, c.enabled)
		require.NoError(t, err)
		require.Equal(t, c.want, scheduleIDs(found), "%+v", c)
		for _, s := range found {
			require.Nil(t, s.Args, "they may be large")
		}
	}
}

func scheduleConflict(t *testing.T, e *store) {
	s := newSchedule("sc_a", "s")
	s.Revision = 1
	_, err := e.PutSchedule(t.Context(), s, manySchedules)
	require.ErrorIs(t, err, engine.ErrNotFound)
	s.Revision = 0
	first := put(t, e, s)
	_, err = e.PutSchedule(t.Context(), s, manySchedules)
	require.ErrorIs(t, err, engine.ErrExists)
	second := put(t, e, first)
	first.Title = "lost"
	_, err = e.PutSchedule(t.Context(), first, manySchedules)
	require.ErrorIs(t, err, engine.ErrConflict)
	got, err := e.GetSchedule(t.Context(), "sc_a")
	require.NoError(t, err)
	sameSchedule(t, second, got)
}

func scheduleRace(t *testing.T, e *store) {
	s := put(t, e, newSchedule("sc_a", "s"))
	won := race(16, func(i int) error {
		changed := s
		changed.Fired = i
		_, err := e.PutSchedule(t.Context(), changed, manySchedules)
		return err
	})
	require.Equal(t, 1, won)
	got, err := e.GetSchedule(t.Context(), "sc_a")
	require.NoError(t, err)
	require.EqualValues(t, 2, got.Revision)
}

func scheduleLimit(t *testing.T, e *store) {
	for _, id := range []string{"sc_a", "sc_b"} {
		_, err := e.PutSchedule(t.Context(), newSchedule(id, "s"), 2)
		require.NoError(t, err)
	}
	_, err := e.PutSchedule(t.Context(), newSchedule("sc_c", "s"), 2)
	require.ErrorIs(t, err, engine.ErrScheduleLimit)
	var limit *engine.LimitError
	require.ErrorAs(t, err, &limit)
	require.Equal(t, 2, limit.Max)
	require.Equal(t, []string{"sc_a", "sc_b"}, limit.Active)
	_, err = e.GetSchedule(t.Context(), "sc_c")
	require.ErrorIs(t, err, engine.ErrNotFound)

	_, err = e.PutSchedule(t.Context(), newSchedule("sc_d", "other"), 2)
	require.NoError(t, err, "another session")
	disabled := newSchedule("sc_e", "s")
	disabled.Enabled = false
	disabled, err = e.PutSchedule(t.Context(), disabled, 2)
	require.NoError(t, err, "a disabled one is not counted")
	a, err := e.GetSchedule(t.Context(), "sc_a")
	require.NoError(t, err)
	a.Fired++
	a, err = e.PutSchedule(t.Context(), a, 2)
	require.NoError(t, err, "one that is counted already")
	a.Fired++
	a, err = e.PutSchedule(t.Context(), a, 1)
	require.NoError(t, err, "it has its place, however few there may be now")
	disabled.Enabled = true
	_, err = e.PutSchedule(t.Context(), disabled, 2)
	require.ErrorIs(t, err, engine.ErrScheduleLimit, "it would be enabled again")
	a.Enabled = false
	_, err = e.PutSchedule(t.Context(), a, 2)
	require.NoError(t, err)
	_, err = e.PutSchedule(t.Context(), disabled, 2)
	require.NoError(t, err, "there is room again")
}

func scheduleLimitRace(t *testing.T, e *store) {
	won := race(20, func(i int) error {
		_, err := e.PutSchedule(t.Context(), newSchedule(fmt.Sprintf("sc_%d", i), "s"), 5)
		if err != nil && !errors.Is(err, engine.ErrScheduleLimit) {
			t.Error(err)
		}
		return err
	})
	require.Equal(t, 5, won)
	found, err := e.Schedules(t.Context(), "s", true)
	require.NoError(t, err)
	require.Len(t, found, 5)
}

// A removed schedule is gone for good, and gets no new runs. Its earlier runs stay.
func scheduleRemoved(t *testing.T, e *store) {
	feed := e.Watch(t.Context(), "s")
	before := e.Recorded()
	for _, id := range []string{"sc_on", "sc_off"} {
		s := newSchedule(id, "s")
		s.Enabled, s.NextAt = id == "sc_on", time.Now()
		stored, err := e.PutSchedule(t.Context(), s, 1)
		require.NoError(t, err)
		run := newRun("bg_"+id, "s")
		run.Schedule = id
		require.NoError(t, e.Submit(t.Context(), run))
		taken := e.Recorded()
		require.Equal(t, "scheduled "+id+" 1, queued bg_"+id+" queued", took(t, feed))

		require.NoError(t, e.RemoveSchedule(t.Context(), id))
		require.Equal(t, "purged "+id+" 1", took(t, feed))
		require.Less(t, e.Recorded(), taken)
		_, err = e.GetSchedule(t.Context(), id)
		require.ErrorIs(t, err, engine.ErrNotFound)
		require.ErrorIs(t, e.RemoveSchedule(t.Context(), id), engine.ErrNotFound, "it is gone already")
		_, err = e.PutSchedule(t.Context(), stored, manySchedules)
		require.ErrorIs(t, err, engine.ErrNotFound, "a change comes too late")
		run.ID = "bg_late"
		require.ErrorIs(t, e.Submit(t.Context(), run), engine.ErrNotFound)
		_, err = e.Get(t.Context(), run.ID)
		require.ErrorIs(t, err, engine.ErrNotFound)
	}

	for _, enabled := range []bool{false, true} {
		found, err := e.Schedules(t.Context(), "", enabled)
		require.NoError(t, err)
		require.Empty(t, found)
	}
	found, next, err := e.Due(t.Context(), time.Now().Add(time.Hour), 10)
	require.NoError(t, err)
	require.Empty(t, found)
	require.Zero(t, next)
	runs, err := e.List(t.Context(), engine.Query{Schedule: "sc_on"})
	require.NoError(t, err)
	require.Equal(t, "bg_sc_on", ids(runs), "its run still names it")
	complete(t, started(t, e, "bg_sc_on"), engine.StatusSucceeded)
	complete(t, started(t, e, "bg_sc_off"), engine.StatusSucceeded)
	require.NoError(t, e.Remove(t.Context(), "bg_sc_on"))
	require.NoError(t, e.Remove(t.Context(), "bg_sc_off"))
	require.Equal(t, before, e.Recorded(), "nothing is left")
	require.ErrorIs(t, e.RemoveSchedule(t.Context(), "sc_unknown"), engine.ErrNotFound)
}

// Everything submitted after a removal has returned is refused.
func scheduleRemovedRace(t *testing.T, e *store) {
	put(t, e, newSchedule("sc_a", "s"))
	race(16, func(i int) error {
		if i == 7 {
			return e.RemoveSchedule(t.Context(), "sc_a")
		}
		run := newRun(fmt.Sprintf("bg_%d", i), "s")
		run.Schedule = "sc_a"
		_, gone := e.GetSchedule(t.Context(), "sc_a")
		err := e.Submit(t.Context(), run)
		if gone != nil && err == nil {
			t.Errorf("%s was submitted after its schedule was removed", run.ID)
		}
		if err != nil && !errors.Is(err, engine.ErrNotFound) {
			t.Error(err)
		}
		return err
	})
	_, err := e.GetSchedule(t.Context(), "sc_a")
	require.ErrorIs(t, err, engine.ErrNotFound)
}

func due(t *testing.T, e *store) {
	start, err := e.Now(t.Context())
	require.NoError(t, err)
	require.True(t, start.Equal(time.Now()))
	look := func(now time.Time, max int) (string, time.Time) {
		found, next, err := e.Due(t.Context(), now, max)
		require.NoError(t, err)
		for _, s := range found {
			require.Nil(t, s.Args, "they may be large")
			require.True(t, s.Enabled)
		}
		return scheduleIDs(found), next
	}
	found, next := look(start, 10)
	require.Empty(t, found)
	require.Zero(t, next)

	stored := make(map[string]engine.Schedule)
	for i, id := range []string{"sc_third", "sc_first", "sc_second", "sc_never", "sc_disabled"} {
		s := newSchedule(id, fmt.Sprint("session", i))
		s.NextAt = start.Add([]time.Duration{3, 1, 2, 0, 1}[i] * time.Hour)
		if id == "sc_never" {
			s.NextAt = time.Time{}
		}
		s.Enabled = id != "sc_disabled"
		stored[id] = put(t, e, s)
	}

	for _, c := range []struct {
		after time.Duration
		max   int
		want  string
		next  time.Duration
	}{
		{0, 10, "", 1}, {1, 10, "sc_first", 2}, {2, 10, "sc_first sc_second", 3}, {2, 1, "sc_first", 2},
		{9, 10, "sc_first sc_second sc_third", 0}, {9, 2, "sc_first sc_second", 3},
	} {
		found, next := look(start.Add(c.after*time.Hour), c.max)
		require.Equal(t, c.want, found, "%+v", c)
		if c.next == 0 {
			require.Zero(t, next, "%+v", c)
		} else {
			require.True(t, next.Equal(start.Add(c.next*time.Hour)), "%+v: %v", c, next)
		}
	}

	first, second := stored["sc_first"], stored["sc_second"]
	first.NextAt, second.Enabled = start.Add(4*time.Hour), false
	put(t, e, first)
	put(t, e, second)
	found, next = look(start.Add(3*time.Hour), 10)
	require.Equal(t, "sc_third", found)
	require.True(t, next.Equal(start.Add(4*time.Hour)))
}
