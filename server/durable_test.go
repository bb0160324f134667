package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/wire"
)

// settled waits until a run has ended.
func (s service) settled(session, id string) engine.Run {
	s.t.Helper()
	checked, err := s.runs.Check(s.t.Context(), session, background.CheckRequest{IDs: []string{id}, Wait: background.MaxWait, MaxChars: -1, Peek: true})
	require.NoError(s.t, err)
	return s.whole(checked.Reports[0].Run)
}

// said waits until a run has written so much.
func (s service) said(session, id, text string) {
	s.t.Helper()
	for {
		chunk, err := s.Session(session).Tail(s.t.Context(), id, 0, 100)
		require.NoError(s.t, err)
		if string(chunk.Data) == text {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// again waits until a run is in another attempt than its first.
func (s service) again(session, id string) engine.Run {
	s.t.Helper()
	for {
		run, err := s.runs.Get(s.t.Context(), session, id)
		require.NoError(s.t, err)
		if run.Attempt > 1 {
			return run
		}
		time.Sleep(time.Millisecond)
	}
}

// What is kept in a data directory outlasts the process: ended runs with their
// files, notices and schedules; and runs go on where their tools allow it.
func TestDataDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	outside := gotool.Tool{Name: "outside", Description: "Does what the host does not see.", Hints: abi.Hints{SupportsBackground: true},
		Handler: gotool.Handle(func(ctx context.Context, c *gotool.Call, _ struct{}) (string, error) {
			fmt.Fprintln(c.Output(), "working")
			<-ctx.Done()
			return "", ctx.Err()
		})}
	cfg := Config{DataDir: dir, Tools: []gotool.Tool{outside}}
	tools := []string{"echo", "keeper", "sleeper"}
	s := open(t, cfg, tools...)
	_, err := Open(t.Context(), cfg)
	require.ErrorIs(t, err, engine.ErrLocked, "one service at a time")

	ended := s.spawn(alice, "echo", `{"n":1}`)
	s.settled(alice, ended)
	lost, goes, anew := s.spawn(alice, "outside", `{}`), s.spawn(alice, "keeper", `{}`), s.spawn(alice, "sleeper", `{}`)
	daily := s.schedule(alice, "echo", `{}`, `{"cron_expression":"0 0 * * *"}`)
	s.said(alice, lost, "working\n")
	s.said(alice, anew, "working\n")
	s.said(alice, goes, "saved\n")
	require.NoError(t, s.Close(done()))

	s = open(t, cfg, tools...)
	report := s.check(alice, ended, `,"max_chars":100`)
	require.Equal(t, map[string]any{"n": 1.0}, report["result"])
	require.Equal(t, "echoing\n", report["output"].(map[string]any)["text"])
	require.Equal(t, "echoing\n", s.artifact(alice, ended, engine.OutputLog))
	path := s.notices(alice)[0].LogPath
	require.FileExists(t, filepath.Join(dir, filepath.FromSlash(path)))
	onDisk, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash("runs/"+ended+"/result.json")))
	require.NoError(t, err)
	var envelope engine.Envelope
	require.NoError(t, json.Unmarshal(onDisk, &envelope))
	require.JSONEq(t, `{"n":1}`, string(envelope.Result))

	run, err := s.runs.Get(t.Context(), alice, lost)
	require.NoError(t, err)
	require.Equal(t, engine.KindInterrupted, run.Error.Kind, "it is neither idempotent nor readonly")
	require.Contains(t, s.check(alice, lost, "")["output"].(map[string]any)["text"], "working\n")

	for _, id := range []string{goes, anew} { // a plugin that has done nothing yet begins anew
		run = s.again(alice, id)
		require.Equal(t, engine.StatusRunning, run.Status)
		require.Equal(t, 2, run.Attempt)
	}
	s.said(alice, goes, "saved\n")
	schedules := s.agent(alice, CheckBackground, `{}`)["schedules"].([]any)
	require.Equal(t, daily, schedules[0].(map[string]any)["schedule_id"])
}

// An attempt is given what the one before it saved, over the plugin's contract.
func TestCheckpoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := Config{Engine: newProcess()}
		first := open(t, cfg, "keeper")
		id := first.spawn(alice, "keeper", `{}`)
		synctest.Wait()
		second := open(t, restarted(cfg), "keeper")
		synctest.Wait()
		require.Equal(t, "succeeded", second.stop(alice, id, "")["status"], "it has a result when it is stopped")
		run := second.settled(alice, id)
		require.JSONEq(t, `{"data":"aGFsZi13YXk="}`, string(run.Result))
		require.Equal(t, 2, run.Attempt)
		require.EqualValues(t, 1, second.Stats().Runs.Rerun)
	})
}

// Where a run may not go on it ends, and says why, with its output kept.
func TestOrphans(t *testing.T) {
	changed := zoo()["keeper"]
	changed.Manifest.Version = "2.0.0"
	for _, test := range []struct {
		name  string
		files fstest.MapFS
		want  string
	}{
		{"gone", fstest.MapFS{}, `no such tool: "keeper"`},
		{"changed", fstest.MapFS{"keeper.wasm": {Data: changed.Wasm()}}, "the plugin of keeper was replaced in the meantime"},
		{"not granted", fstest.MapFS{"keeper.wasm": {Data: zoo()["keeper"].Wasm()}}, "denied: the plugin keeper needs clock, which the operator has not granted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cfg := Config{Engine: newProcess()}
				first := open(t, cfg, "keeper")
				id := first.spawn(alice, "keeper", `{}`)
				time.Sleep(time.Second) // what it said is stored
				second := openFolder(t, restarted(cfg), test.files)
				run := second.settled(alice, id)
				require.Equal(t, engine.StatusFailed, run.Status)
				require.Equal(t, &engine.RunError{Kind: engine.KindOrphaned, Message: "The host went down, and the run is not run again: " + test.want}, run.Error)
				require.Equal(t, "saved\n", second.artifact(alice, id, engine.OutputLog))
				require.Len(t, second.notices(alice), 1)
				time.Sleep(time.Hour) // the first host continues, and changes nothing
				require.Equal(t, run, second.settled(alice, id))
				require.Zero(t, first.Stats().Runs.Active, "it noticed")
			})
		})
	}
}

// Runs there is no room for wait their turn after a restart.
func TestRecoveryWaitsForRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := Config{Engine: newProcess()}
		first := open(t, cfg, "keeper")
		for range 3 {
			first.spawn(alice, "keeper", `{}`)
		}
		synctest.Wait()
		cfg.Runs.PerSession = 1
		second := open(t, restarted(cfg), "keeper")
		synctest.Wait()
		statuses := func() (running, queued int) {
			for _, row := range second.agent(alice, CheckBackground, `{}`)["tasks"].([]any) {
				switch row.(map[string]any)["status"] {
				case "running":
					running++
				case "queued":
					queued++
				}
			}
			return running, queued
		}
		running, queued := statuses()
		require.Equal(t, [2]int{1, 2}, [2]int{running, queued})
		time.Sleep(301 * time.Second) // the deadline of the first
		synctest.Wait()
		running, queued = statuses()
		require.Equal(t, [2]int{1, 1}, [2]int{running, queued})
	})
}

// A call that is waited for has no checkpoints, and the tool continues without them.
// Once it is parked, it has.
func TestCheckpointOfACall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "keeper")
		r, err := s.Call(t.Context(), Request{Tool: "keeper", Limits: Limits{Timeout: time.Second}})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Nil(t, r.Value)
		id := s.park(alice, "keeper", `{}`)
		require.Equal(t, "succeeded", s.stop(alice, id, "")["status"])
		require.JSONEq(t, `{}`, string(s.settled(alice, id).Result), "the first attempt is given none")
	})
}

// A later attempt of a parked call has the limits and the locale of its caller.
func TestParkedTerms(t *testing.T) {
	req := Request{
		Session: alice, Tool: "reader", Locale: "de-CH",
		Limits: Limits{Fuel: 5e9, Memory: 1 << 20, Output: 1000, Timeout: time.Hour},
	}
	const stored, fuel = `{"fuel":5000000000,"memory":1048576,"output":1000,"locale":"de-CH"}`, 5e9
	check := func(t *testing.T, first service, again func() service) {
		var id string
		req.OnPark = func(run wire.Run) { id = run.TaskID }
		_, err := first.Call(t.Context(), req)
		require.NoError(t, err)
		first.said(alice, id, "reading\n")
		second := again()
		second.again(alice, id)
		second.said(alice, id, "reading\n")
		require.Equal(t, "succeeded", second.stop(alice, id, "")["status"])
		run := second.settled(alice, id)
		require.Equal(t, 2, run.Attempt)
		require.JSONEq(t, stored, string(run.Terms))
		var told abi.Context
		require.NoError(t, json.Unmarshal(run.Result, &told))
		require.Equal(t, abi.Context{CallID: id, Session: alice, Attempt: 2, Locale: "de-CH", TimeoutMS: 3_600_000, Fuel: fuel}, told)
	}
	t.Run("memory", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			cfg := Config{Engine: newProcess(), ParkAfter: time.Second}
			check(t, open(t, cfg, "reader"), func() service { return open(t, restarted(cfg), "reader") })
		})
	})
	t.Run("disk", func(t *testing.T) {
		cfg := Config{DataDir: t.TempDir(), ParkAfter: 10 * time.Millisecond, Runs: RunsConfig{Grace: time.Hour}}
		first := open(t, cfg, "reader")
		check(t, first, func() service {
			require.NoError(t, first.Close(done()))
			return open(t, cfg, "reader")
		})
	})
}

// Terms that cannot be read are none that could be kept to.
func TestUnreadableTerms(t *testing.T) {
	s := open(t, Config{}, "echo")
	_, err := s.executor.Execute(t.Context(), engine.Run{ID: "bg_a", Tool: "echo", Args: json.RawMessage(`{}`), Terms: json.RawMessage(`{"fuel":"much"}`)}, nil)
	require.ErrorContains(t, err, "reading the terms of bg_a")
}

// What a schema marks as secret reaches the tool, and is kept nowhere: not on
// disk, not in logs, lists, notices or events. Such a run is not run again.
func TestSecretsAreNotStored(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{DataDir: dir, ParkAfter: 50 * time.Millisecond}
	s := open(t, cfg, "vault", "keeper")
	events := s.runs.Watch(t.Context(), "")
	const args = `{"n":1,"deep":{"code":"hunter2"}}`
	spawned, parked := s.spawn(alice, "vault", args), s.park(alice, "vault", args)
	s.said(alice, spawned, "opened\n")
	run, err := s.runs.Get(t.Context(), alice, spawned)
	require.NoError(t, err)
	run = s.whole(run)
	require.JSONEq(t, `{"n":1,"deep":{}}`, string(run.Args))
	require.True(t, run.Secret)

	var seen strings.Builder
	say := func(v any, err error) {
		require.NoError(t, err)
		text, err := json.Marshal(v)
		require.NoError(t, err)
		seen.Write(text)
	}
	say(s.call(alice, CheckBackground, `{}`), nil)
	say(s.call(alice, CheckBackground, `{"task_ids":["`+spawned+`","`+parked+`"],"wait_seconds":0}`), nil)
	say(s.Session(alice).Snapshot(t.Context()))
	say(s.runs.Get(t.Context(), alice, parked))
	require.NoError(t, s.Close(done()))
	for len(events) > 0 {
		say(<-events, nil)
	}
	logs := s.logs.String()
	require.Contains(t, logs, "background run spawned")

	s = open(t, cfg, "vault", "keeper")
	for _, id := range []string{spawned, parked} {
		require.Equal(t, engine.KindInterrupted, s.settled(alice, id).Error.Kind)
	}
	say(s.Session(alice).Notices(t.Context(), 0))
	say(s.call(alice, CheckBackground, `{}`), nil)
	require.NotContains(t, seen.String()+logs+s.logs.String(), "hunter2")
	require.NoError(t, s.Close(done()))
	files := 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		require.NoError(t, err)
		if e.IsDir() {
			return nil
		}
		files++
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.False(t, bytes.Contains(data, []byte("hunter2")), path)
		return nil
	}))
	require.Greater(t, files, 3)
}

// The tool itself is given its secret.
func TestSecretsReachTheTool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "confidant")
		const args = `{"key":"hunter2"}`
		require.JSONEq(t, args, string(s.call(alice, "confidant", args).Value))
		run := s.settled(alice, s.spawn(alice, "confidant", args))
		require.JSONEq(t, args, string(run.Result))
		require.JSONEq(t, `{}`, string(run.Args))
	})
}
