package server

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func (s service) stop(session, id, more string) object {
	s.t.Helper()
	return s.agent(session, StopBackground, `{"task_id":"`+id+`"`+more+`}`)
}

// A tool that listens ends when it is asked to, and keeps what it wrote.
func TestStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "sleeper")
		id := s.spawn(alice, "sleeper", "{}")
		synctest.Wait()
		time.Sleep(3 * time.Second)
		before := time.Now()
		want := object{"task_id": id, "status": "canceled", "stopped": true}
		require.Equal(t, want, s.stop(alice, id, `,"reason":"no longer needed"`))
		require.Zero(t, time.Since(before), "a tool that gives way is not waited for")
		require.Equal(t, want, s.stop(alice, id, ``), "twice is the same")
		require.Equal(t, want, s.stop(alice, id, `,"force":true`))

		report := s.check(alice, id, "")
		require.Equal(t, "canceled", report["status"])
		require.Equal(t, true, report["done"])
		require.Equal(t, 3.0, report["elapsed_seconds"])
		require.Equal(t, "Canceled by request.", report["summary"])
		require.Equal(t, "working\n[system] Canceled by request.\n", report["output"].(map[string]any)["text"])
		require.NotContains(t, report, "error")
		run, err := s.runs.Get(t.Context(), alice, id)
		require.NoError(t, err)
		require.Equal(t, "no longer needed", run.Cancel.Reason)
	})
}

// A loop that never listens ends with its context, in the middle of the loop.
func TestStopForce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "spin")
		id := s.spawn(alice, "spin", "{}")
		require.Equal(t, object{"task_id": id, "status": "canceled", "stopped": true}, s.stop(alice, id, `,"force":true`))
		require.Zero(t, s.agent(alice, CheckBackground, `{}`)["active"])
	})
}

// Without force it has the grace to end by itself, and no longer.
func TestStopAfterGrace(t *testing.T) {
	s := open(t, Config{Runs: RunsConfig{Grace: time.Millisecond}}, "spin")
	id := s.spawn(alice, "spin", "{}")
	s.stop(alice, id, "") // stopping, if this machine is very slow
	s.settled(alice, id)
	require.Equal(t, object{"task_id": id, "status": "canceled", "stopped": true}, s.stop(alice, id, ""))
	require.Zero(t, s.Stats().Runs.Active, "its place is free")
}

// A result that came before the stop took effect is kept and returned.
func TestStopKeepsResults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo", "stubborn", "fails")
		id := s.spawn(alice, "echo", `{"n":1}`)
		synctest.Wait()
		finished := object{"task_id": id, "status": "succeeded", "stopped": false, "already_finished": true, "result": map[string]any{"n": 1.0}}
		require.Equal(t, finished, s.stop(alice, id, ""))
		require.Equal(t, finished, s.stop(alice, id, `,"force":true`))

		id = s.spawn(alice, "stubborn", "{}")
		synctest.Wait()
		require.Equal(t, object{"task_id": id, "status": "succeeded", "stopped": false, "already_finished": true, "result": map[string]any{"partial": true}},
			s.stop(alice, id, ""))

		id = s.spawn(alice, "fails", "{}")
		synctest.Wait()
		require.Equal(t, object{
			"task_id": id, "status": "failed", "stopped": false, "already_finished": true,
			"error": map[string]any{"kind": "tool_error", "message": "the file is not there"},
		}, s.stop(alice, id, ""))
	})
}

func TestStopDryRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "sleeper", "echo")
		running, ended := s.spawn(alice, "sleeper", "{}"), s.spawn(alice, "echo", "{}")
		synctest.Wait()
		dry := func(id string) string {
			r, err := s.Call(t.Context(), Request{Session: alice, Tool: StopBackground, Args: []byte(`{"task_id":"` + id + `"}`), DryRun: true})
			require.NoError(t, err)
			return string(r.Value) + r.Error
		}
		require.Equal(t, `{"task_id":"`+running+`","status":"running","stopped":false,"dry_run":true}`, dry(running))
		require.Equal(t, `{"task_id":"`+ended+`","status":"succeeded","stopped":false,"already_finished":true,"dry_run":true}`, dry(ended))
		require.Equal(t, "no such background task in this session: bg_x; active: "+running, dry("bg_x"))
		require.Equal(t, "running", s.check(alice, running, `,"wait_seconds":0`)["status"])
		require.NotContains(t, s.check(alice, running, `,"wait_seconds":0`), "stopping")
	})
}

func TestStopBadRequests(t *testing.T) {
	s := open(t, Config{}, "echo")
	require.Equal(t, "task_id: give a task_id, or a schedule_id", s.refused(alice, StopBackground, `{}`))
	require.Equal(t, "schedule_id: give either task_id or schedule_id", s.refused(alice, StopBackground, `{"task_id":"x","schedule_id":"y"}`))
}

// A check that waits for a run returns when it is stopped.
func TestStopWakesWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "sleeper")
		id := s.spawn(alice, "sleeper", "{}")
		answers := make(chan object)
		go func() { answers <- s.check(alice, id, "") }()
		synctest.Wait()
		time.Sleep(time.Second)
		s.stop(alice, id, "")
		answer := <-answers
		require.Equal(t, "canceled", answer["status"])
		require.Equal(t, 1.0, answer["waited_seconds"])
	})
}
