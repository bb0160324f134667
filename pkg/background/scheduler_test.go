package background

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// If the clock is set, or stood still while the machine was suspended, a schedule
// neither fires twice, nor many times at once, nor stops firing.
func TestScheduleClockIsSet(t *testing.T) {
	setup := func(t *testing.T) (m *Manager, s engine.Schedule, set func(time.Duration), count func() int) {
		var skew atomic.Int64
		m = newManager(t, Config{Engine: clockEngine{memory.New(), func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }}})
		s = newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "*/10 * * * *"})
		time.Sleep(61 * time.Minute)
		require.Len(t, firings(t, m, s), 6)
		return m, s, func(by time.Duration) { skew.Add(int64(by)); time.Sleep(61 * time.Second) }, func() int { return len(firings(t, m, s)) }
	}
	bubble(t, "forward a little", func(t *testing.T) {
		_, _, set, count := setup(t)
		set(5 * time.Hour)
		require.Equal(t, 7, count(), "one of thirty that were missed")
		time.Sleep(30 * time.Minute)
		require.Equal(t, 10, count())
	})
	bubble(t, "back a little", func(t *testing.T) {
		m, s, set, count := setup(t)
		set(-30 * time.Minute)
		time.Sleep(28 * time.Minute)
		require.Equal(t, 6, count(), "these times were fired for")
		require.Equal(t, 6, reread(t, m, s).Fired)
		time.Sleep(10 * time.Minute)
		require.Equal(t, 7, count())
		require.Equal(t, 7, reread(t, m, s).Fired)
	})
	bubble(t, "far forward, and back", func(t *testing.T) {
		m, s, set, count := setup(t)
		set(2 * 365 * 24 * time.Hour)
		require.Equal(t, 7, count())
		require.Equal(t, 2001, reread(t, m, s).NextAt.Year(), "it goes by the clock it has")
		set(-2 * 365 * 24 * time.Hour)
		require.Equal(t, 2000, reread(t, m, s).NextAt.Year())
		time.Sleep(10 * time.Minute)
		require.Equal(t, 8, count(), "and does not wait for two years")
		require.Equal(t, 8, reread(t, m, s).Fired)
	})
	bubble(t, "back between two hosts", func(t *testing.T) {
		engine := memory.New()
		year := 365 * 24 * time.Hour
		before := newManager(t, Config{Engine: ahead(engine, year)})
		s := newSchedule(t, before, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "*/10 * * * *"})
		require.NoError(t, before.Close(t.Context()))
		m := newManager(t, Config{Engine: engine})
		time.Sleep(61 * time.Minute)
		require.Len(t, firings(t, m, s), 6)
	})
}

// failing is an engine that cannot read schedules while it is broken.
type failing struct {
	*hookEngine
	broken atomic.Bool
	asked  atomic.Int32
}

func newFailing() *failing {
	e := &failing{}
	e.hookEngine = hooked(func(method string) error {
		if method != "schedules" && method != "getschedule" {
			return nil
		}
		e.asked.Add(1)
		if e.broken.Load() {
			return errDisk
		}
		return nil
	})
	return e
}

func TestSchedulerAndAnEngineThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newFailing()
		before := newManager(t, Config{Engine: engine})
		s := newSchedule(t, before, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *"})
		require.NoError(t, before.Close(t.Context()))

		engine.broken.Store(true)
		m := newManager(t, Config{Engine: engine})
		time.Sleep(time.Minute)
		engine.broken.Store(false)
		time.Sleep(time.Hour)
		require.Len(t, firings(t, m, s), 1, "read late, and fired in time")

		time.Sleep(50 * time.Minute)
		engine.broken.Store(true)
		time.Sleep(20 * time.Minute)
		require.Len(t, firings(t, m, s), 1)
		engine.broken.Store(false)
		time.Sleep(11 * time.Second)
		require.Len(t, firings(t, m, s), 2, "caught up")
	})
}

// A schedule that the host cannot read is disabled, and the others continue.
func TestSchedulerAndAnUnreadableSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		s := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *"})
		bad := newSchedule(t, m, alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *"})
		_, err := m.scheduler.change(t.Context(), bad.ID, func(s *engine.Schedule) error { s.Timezone = "Mars/Olympus"; return nil })
		require.NoError(t, err)
		time.Sleep(time.Hour + time.Minute)
		require.Len(t, firings(t, m, s), 1)
		require.Empty(t, firings(t, m, bad))
		require.Equal(t, engine.DisabledZone, reread(t, m, bad).Disabled)
	})
}

// Schedules need no goroutines, however many there are, and cost nothing while they
// wait.
func TestSchedulerWithManySchedules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 400
		store := newFailing()
		var ran atomic.Int32
		cfg := Config{Engine: store, Executor: func(context.Context, engine.Run, *output.Sink) (Outcome, error) { ran.Add(1); return Outcome{}, nil }}
		before := newManager(t, cfg)
		for i := range many {
			newSchedule(t, before, fmt.Sprint("session ", i), ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *"})
		}
		require.NoError(t, before.Close(t.Context()))
		m := newManager(t, cfg)
		synctest.Wait()
		require.Less(t, runtime.NumGoroutine(), 100, "no goroutine for each")
		asked := store.asked.Load()
		time.Sleep(59 * time.Minute)
		require.Equal(t, asked, store.asked.Load(), "no polling")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.EqualValues(t, many, ran.Load(), "all that were due at once have run")
		require.Equal(t, many, planned(m))
		time.Sleep(time.Hour)
		require.EqualValues(t, 2*many, ran.Load())
	})
}
