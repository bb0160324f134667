package background

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

func large(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n-2) + `"`) }

func TestRecordQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{RecordQuota: 500 << 10, OwnerQuota: 400 << 10, Owner: func(session string) string { return session[:1] }})
		request := SpawnRequest{Tool: "second", Args: large(80 << 10)}
		var ids []string
		for range 4 {
			ids = append(ids, must(m.Spawn(t.Context(), alice, request)).ID)
		}
		_, err := m.Spawn(t.Context(), alice, request)
		var limit *engine.LimitError
		require.ErrorAs(t, err, &limit)
		require.ErrorIs(t, err, engine.ErrRecordLimit)
		require.Equal(t, 400<<10, limit.Max)
		require.Len(t, must(m.engine.List(t.Context(), engine.Query{})), 4, "nothing of it is left")
		require.Equal(t, 4, m.admission.active())
		for _, id := range ids {
			for { // until it has ended, and nobody is notified
				if run := must(m.engine.Get(t.Context(), id)); run.Status.Terminal() {
					break
				}
				time.Sleep(time.Second)
			}
		}
		_, err = m.Spawn(t.Context(), alice, request)
		require.ErrorIs(t, err, engine.ErrRecordLimit, "results nobody was told of stay")
		_, err = m.Schedule(t.Context(), alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo", Args: large(80 << 10)}, Cron: "0 * * * *"})
		require.ErrorIs(t, err, engine.ErrRecordLimit)
		bobs := spawn(t, m, bob, "echo")
		wait(t, m, bob, bobs.ID)
		stats := m.Stats()
		require.EqualValues(t, 3, stats.Refused)
		require.Equal(t, m.engine.Recorded(), stats.RecordBytes)
		require.EqualValues(t, 500<<10, stats.RecordQuota)

		require.NoError(t, m.Acknowledge(t.Context(), alice, ids[1:2]))
		must(m.Spawn(t.Context(), alice, request))
		_, err = m.Get(t.Context(), alice, ids[1])
		require.ErrorIs(t, err, engine.ErrNotFound)
		for _, id := range []string{ids[0], ids[2], ids[3]} {
			require.Equal(t, engine.StatusSucceeded, must(m.Get(t.Context(), alice, id)).Status)
		}
		require.NotZero(t, must(m.Get(t.Context(), bob, bobs.ID)))
	})
}

// A call whose record the quota has no room for ends like a call that finds no free
// slot.
func TestParkedCallWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{RecordQuota: 50 << 10})
		call := func(tool string) (RunResult, error) {
			return m.Run(t.Context(), alice, RunRequest{SpawnRequest: SpawnRequest{Tool: tool, Args: large(80 << 10)}, ParkAfter: time.Second,
				Work: func(ctx context.Context, sink *output.Sink) (Outcome, error) {
					<-sink.Stopping()
					if tool == "polite" {
						return Outcome{Result: json.RawMessage(`1`)}, nil
					}
					return Outcome{}, ErrStopped
				},
			})
		}
		_, err := call("other")
		require.ErrorIs(t, err, engine.ErrRecordLimit)
		ran, err := call("polite")
		require.NoError(t, err)
		require.False(t, ran.Parked)
		require.JSONEq(t, `1`, string(ran.Outcome.Result), "what it had is not lost")
		require.EqualValues(t, 2, m.Stats().Refused)
		require.Zero(t, m.admission.active())
		require.Empty(t, m.runs.all())
	})
}

// A firing whose run the record quota has no room for waits until there is room.
// However many firings wait, each attempt writes only one line to the log.
func TestFiringWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(testlog.Buffer)
		m := newManager(t, Config{RecordQuota: 150 << 10, Logger: logTo(log)})
		s := must(m.Schedule(t.Context(), alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "second", Args: large(40 << 10)}, At: time.Now().Add(time.Minute)}))
		other := must(m.Schedule(t.Context(), alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, At: s.At}))
		first := must(m.Spawn(t.Context(), alice, SpawnRequest{Tool: "second", Args: large(60 << 10)}))
		time.Sleep(2*time.Minute - time.Second)
		synctest.Wait()
		require.Equal(t, 6, strings.Count(log.String(), "background schedules not fired; trying again\",\"schedules\":2"), log.String())
		require.True(t, must(m.GetSchedule(t.Context(), alice, s.ID)).Enabled, "nothing is lost")
		require.Empty(t, must(m.engine.List(t.Context(), engine.Query{Schedule: s.ID})))
		require.NoError(t, m.Acknowledge(t.Context(), alice, []string{first.ID}))
		time.Sleep(fireAgain + 2*time.Second) // a run takes one
		synctest.Wait()
		runs := must(m.engine.List(t.Context(), engine.Query{Schedule: s.ID}))
		require.Len(t, runs, 1)
		require.Equal(t, engine.StatusSucceeded, runs[0].Status)
		require.False(t, must(m.GetSchedule(t.Context(), alice, s.ID)).Enabled)
		require.Equal(t, 1, must(m.GetSchedule(t.Context(), alice, other.ID)).Fired)
	})
}

// A firing that finds room too late does not start its run, and the run says why.
func TestFiringWithoutRoomForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{RecordQuota: 150 << 10})
		s := must(m.Schedule(t.Context(), alice, ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo", Args: large(40 << 10)}, At: time.Now().Add(time.Minute)}))
		first := must(m.Spawn(t.Context(), alice, SpawnRequest{Tool: "second", Args: large(60 << 10)}))
		time.Sleep(2 * DefaultMisfire)
		require.NoError(t, m.Acknowledge(t.Context(), alice, []string{first.ID}))
		time.Sleep(fireAgain)
		synctest.Wait()
		runs := must(m.engine.List(t.Context(), engine.Query{Schedule: s.ID}))
		require.Len(t, runs, 1)
		require.Equal(t, engine.StatusFailed, runs[0].Status)
		require.Contains(t, runs[0].Error.Message, "the record quota was full")
		require.False(t, must(m.GetSchedule(t.Context(), alice, s.ID)).Enabled)
	})
}

// Schedules that a limit refuses are counted.
func TestRefusedSchedulesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{Schedules: 1})
		request := ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "echo"}, Cron: "0 * * * *"}
		must(m.Schedule(t.Context(), alice, request))
		_, err := m.Schedule(t.Context(), alice, request)
		require.ErrorIs(t, err, engine.ErrScheduleLimit)
		require.EqualValues(t, 1, m.Stats().Refused)
	})
}

func TestRecordQuotaConfig(t *testing.T) {
	for field, cfg := range map[string]Config{
		"RecordQuota": {RecordQuota: -1},
		"OwnerQuota":  {OwnerQuota: 2, RecordQuota: 1},
	} {
		cfg.Executor = script
		_, err := New(t.Context(), cfg)
		var bad *FieldError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, field, bad.Field)
	}
}

// The size of a result on disk is proportional to the size of the result: with
// indentation it could grow with its square.
func TestResultFileIsNotLarger(t *testing.T) {
	const depth = 5000
	deep := strings.Repeat("[", depth) + strings.Repeat("1,", depth) + "1" + strings.Repeat("]", depth)
	for _, result := range []string{deep, `"` + strings.Repeat("<", 10_000) + `"`} {
		run := engine.Run{ID: "bg_a", End: engine.End{Result: json.RawMessage(result)}}
		data, err := run.ResultFile()
		require.NoError(t, err)
		require.Less(t, len(data), len(result)+500)
		var e engine.Envelope
		require.NoError(t, json.Unmarshal(data, &e))
		require.JSONEq(t, result, string(e.Result))
	}
}
