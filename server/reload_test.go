package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
)

// fromZoo is the file of a plugin of the zoo.
func fromZoo(name string) *fstest.MapFile { return &fstest.MapFile{Data: zoo()[name].Wasm()} }

// numbered is a plugin that answers with a number, and can run in the background.
func numbered(name string, n int) *fstest.MapFile {
	m := plugintest.Manifest(name)
	m.Tools[0].Hints = abi.Hints{SupportsBackground: true, Readonly: true}
	return &fstest.MapFile{Data: plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Say(abi.StreamResult, fmt.Sprint(n))}.Wasm()}
}

func (s service) reload() plugins.Changes {
	s.t.Helper()
	c, err := s.Reload(s.t.Context())
	require.NoError(s.t, err)
	return c
}

// names are the tools a model sees.
func (s service) names() (names []string) {
	for _, d := range s.Definitions(alice) {
		names = append(names, d.Name)
	}
	return names
}

// A reload is reported to all watchers, once for all that has happened; one
// that changes nothing is not.
func TestReloadIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		files := fstest.MapFS{"echo.wasm": fromZoo("echo")}
		var told []plugins.Changes
		s := openFolder(t, Config{OnReload: func(c plugins.Changes) { told = append(told, c) }}, files)
		ctx, leave := context.WithCancel(t.Context())
		changed, other := s.ToolsChanged(ctx), s.ToolsChanged(t.Context())
		require.Empty(t, s.reload())
		require.Empty(t, changed)

		files["plain.wasm"] = fromZoo("plain")
		require.Equal(t, []string{"plain"}, s.reload().Added)
		files["fails.wasm"] = fromZoo("fails")
		s.reload()
		files["plain.wasm"] = numbered("plain", 1)
		delete(files, "fails.wasm")
		s.reload()
		require.Len(t, told, 3)
		require.Equal(t, plugins.Changes{Changed: []string{"plain"}, Removed: []string{"fails"}, ToolsChanged: []string{"plain"}, ToolsRemoved: []string{"fails"}}, told[2])
		synctest.Wait()
		<-changed
		synctest.Wait()
		require.Empty(t, changed, "one signal for all of it")
		require.Equal(t, append([]string{"echo", "plain"}, unread...), s.names())
		<-other

		files["plain.wasm"] = numbered("plain", 2)
		require.Equal(t, []string{"plain"}, s.reload().Changed)
		synctest.Wait()
		require.Empty(t, other, "models see the same as before")
		require.Equal(t, "2", string(s.call(alice, "plain", "{}").Value))

		leave()
		_, open := <-changed
		require.False(t, open)
		require.NoError(t, s.Close(done()))
		_, open = <-other
		require.False(t, open)
		_, open = <-s.ToolsChanged(t.Context())
		require.False(t, open)
		_, err := s.Reload(t.Context())
		require.ErrorIs(t, err, host.ErrClosed)
	})
}

// The agent's tools come with the first tool that runs in the background, and go
// with the last; but whoever had runs can still look at them.
func TestAgentToolsFollowReloads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		files := fstest.MapFS{"plain.wasm": fromZoo("plain")}
		s := openFolder(t, Config{}, files)
		changed := s.ToolsChanged(t.Context())
		require.Equal(t, []string{"plain"}, s.names())
		files["one.wasm"] = numbered("one", 1)
		s.reload()
		<-changed
		require.Equal(t, append([]string{"one", "plain"}, unread...), s.names())
		delete(files, "one.wasm")
		s.reload()
		<-changed
		require.Equal(t, []string{"plain"}, s.names(), "there never was a run")

		files["one.wasm"] = numbered("one", 1)
		s.reload()
		id := s.spawn(alice, "one", "{}")
		synctest.Wait()
		delete(files, "one.wasm")
		s.reload()
		require.Equal(t, []string{"plain", CheckBackground, StopBackground}, s.names())
		require.Equal(t, 1.0, s.check(alice, id, "")["result"])
		_, err := s.Call(t.Context(), Request{Session: alice, Tool: SpawnBackground, Args: json.RawMessage(`{"tool":"plain","args":{}}`)})
		require.ErrorIs(t, err, plugins.ErrNoTool)
	})
}

// A call that becomes a run after the last tool of its kind is gone opens the
// door to it, and tells.
func TestParkedWhenItsToolIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		files := fstest.MapFS{"sleeper.wasm": fromZoo("sleeper")}
		s := openFolder(t, Config{Grants: map[string]plugins.Grant{"sleeper": {Clock: true}}, ParkAfter: time.Minute}, files)
		answered := make(chan abi.Result)
		go func() { answered <- s.call(alice, "sleeper", "{}") }()
		synctest.Wait()
		delete(files, "sleeper.wasm")
		s.reload()
		require.Empty(t, s.names())
		changed := s.ToolsChanged(t.Context())
		var parked struct {
			TaskID string `json:"task_id"`
		}
		require.NoError(t, json.Unmarshal((<-answered).Value, &parked))
		<-changed
		require.Equal(t, []string{CheckBackground, StopBackground}, s.names())
		require.Equal(t, "running", s.check(alice, parked.TaskID, `,"wait_seconds":0`)["status"])
		require.Equal(t, "canceled", s.agent(alice, StopBackground, `{"task_id":"`+parked.TaskID+`","force":true}`)["status"])
	})
}

// slowFile is a folder whose file is opened when the test says so.
type slowFile struct {
	fstest.MapFS
	name   string
	opened chan struct{} // is notified each time there is a gate
	gate   chan struct{} // nil: at once
}

func (f *slowFile) Open(name string) (fs.File, error) {
	if gate := f.gate; gate != nil && name == f.name {
		f.opened <- struct{}{}
		<-gate
	}
	return f.MapFS.Open(name)
}

// A call that was parked before anything has run, as its plugin was still being
// compiled, and whose plugin is replaced meanwhile, says what happened.
func TestParkedCallIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		files := &slowFile{MapFS: fstest.MapFS{"one.wasm": numbered("one", 1)}, name: "one.wasm", opened: make(chan struct{}, 1)}
		opened, err := Open(t.Context(), Config{Folders: []plugins.Folder{{Path: "zoo", FS: files}}, ParkAfter: time.Minute})
		require.NoError(t, err)
		s := service{Service: opened, t: t}
		defer func() { require.NoError(t, s.Close(done())) }()
		tool, err := s.Lookup("one")
		require.NoError(t, err)
		_, err = tool.Plugin.Digest()
		require.NoError(t, err)
		gate := make(chan struct{})
		files.gate = gate
		var parked struct {
			TaskID string `json:"task_id"`
		}
		require.NoError(t, json.Unmarshal(s.call(alice, "one", "{}").Value, &parked))
		<-files.opened
		files.gate = nil
		files.MapFS["one.wasm"] = numbered("one", 2)
		require.Equal(t, []string{"one"}, s.reload().Changed)
		close(gate)
		run := s.settled(alice, parked.TaskID)
		require.Equal(t, &engine.RunError{Kind: engine.KindRejected, Message: "the plugin of one was replaced in the meantime"}, run.Error)
		require.Equal(t, "2", string(s.call(alice, "one", "{}").Value))
	})
}

// What an earlier process left is there for the agent, whatever plugins there
// are now.
func TestAgentToolsForWhatWasLeft(t *testing.T) {
	for name, leave := range map[string]func(s service){
		"a run":      func(s service) { s.settled(alice, s.spawn(alice, "one", "{}")) },
		"a schedule": func(s service) { s.schedule(alice, "one", `{}`, `{"cron_expression":"0 0 * * *"}`) },
		"nothing":    func(service) {},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{DataDir: filepath.Join(t.TempDir(), "data")}
			s := openFolder(t, cfg, fstest.MapFS{"one.wasm": numbered("one", 1)})
			leave(s)
			require.NoError(t, s.Close(done()))
			s = openFolder(t, cfg, fstest.MapFS{})
			want := []string{CheckBackground, StopBackground}
			if name == "nothing" {
				want = nil
			}
			require.Equal(t, want, s.names())
		})
	}
}

// A run ends in the plugin it began in, a schedule runs whatever plugin has its
// tool when it fires, and a run that is for another version is not run.
func TestRunsOverReloads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		files := fstest.MapFS{"chatty.wasm": fromZoo("chatty"), "one.wasm": numbered("one", 1)}
		s := openFolder(t, Config{Grants: map[string]plugins.Grant{"chatty": {Clock: true}}}, files)
		long := s.spawn(alice, "chatty", "{}")
		daily := s.schedule(alice, "one", `{}`, `{"cron_expression":"0 * * * *"}`)
		require.NotEmpty(t, daily)
		old, err := s.Lookup("one")
		require.NoError(t, err)
		version, err := old.Plugin.Digest()
		require.NoError(t, err)
		synctest.Wait()

		files["chatty.wasm"], files["one.wasm"] = numbered("chatty", 2), numbered("one", 2)
		require.Equal(t, []string{"chatty", "one"}, s.reload().Changed)
		require.Equal(t, "one\ntwo\nthree\n", s.check(alice, long, "")["output"].(map[string]any)["text"])
		require.Equal(t, 2.0, s.check(alice, s.spawn(alice, "chatty", "{}"), "")["result"])

		time.Sleep(time.Hour)
		fired := s.agent(alice, CheckBackground, `{}`)["tasks"].([]any)[0].(map[string]any)
		require.Equal(t, "one", fired["tool"])
		require.Equal(t, 2.0, s.check(alice, fired["task_id"].(string), "")["result"])

		_, err = s.executor.Execute(t.Context(), engine.Run{Tool: "one", Version: version, Args: json.RawMessage("{}"), Timeout: time.Minute}, nil)
		require.EqualError(t, err, "rejected: the plugin of one was replaced in the meantime")
	})
}

// What a schedule fires has the version it began with, and not that of when the
// schedule was made: after a crash it continues in that one, and in no other.
func TestScheduledRunsVersion(t *testing.T) {
	keeper := func(version string) *fstest.MapFile {
		p := zoo()["keeper"]
		p.Manifest.Version = version
		return &fstest.MapFile{Data: p.Wasm()}
	}
	for name, c := range map[string]struct {
		after string
		goes  bool
	}{"as it began": {"2.0.0", true}, "as it was scheduled": {"1.0.0", false}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cfg := Config{Engine: newProcess(), Grants: map[string]plugins.Grant{"keeper": {Clock: true}}}
				files := fstest.MapFS{"keeper.wasm": keeper("1.0.0")}
				first := openFolder(t, cfg, files)
				first.schedule(alice, "keeper", `{}`, `{"cron_expression":"0 12 * * *"}`)
				files["keeper.wasm"] = keeper("2.0.0")
				require.Equal(t, []string{"keeper"}, first.reload().Changed)
				time.Sleep(12*time.Hour + time.Minute)
				id := first.agent(alice, CheckBackground, `{}`)["tasks"].([]any)[0].(map[string]any)["task_id"].(string)
				require.Equal(t, "running", first.check(alice, id, `,"wait_seconds":0`)["status"])

				second := openFolder(t, restarted(cfg), fstest.MapFS{"keeper.wasm": keeper(c.after)})
				synctest.Wait()
				if !c.goes {
					require.Equal(t, engine.KindOrphaned, second.settled(alice, id).Error.Kind)
					return
				}
				require.Equal(t, "succeeded", second.stop(alice, id, "")["status"])
				run := second.settled(alice, id)
				require.Equal(t, 2, run.Attempt)
				require.JSONEq(t, `{"data":"aGFsZi13YXk="}`, string(run.Result))

				run.Version = "another"
				_, err := second.executor.Execute(t.Context(), run, nil)
				require.EqualError(t, err, "rejected: the plugin of keeper was replaced in the meantime")
			})
		})
	}
}

// No call and no run fails because plugins are replaced under them, again and
// again.
func TestReloadUnderLoad(t *testing.T) {
	files := &switching{}
	install := func(n int) {
		files.now.Store(&fstest.MapFS{"one.wasm": numbered("one", n), "two.wasm": numbered("two", n)})
	}
	install(0)
	cfg := Config{Folders: []plugins.Folder{{Path: "zoo", FS: files}}, Runs: RunsConfig{PerSession: 1000, PerHost: 1000}}
	opened, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	s := service{Service: opened, t: t}
	defer s.Close(context.Background())
	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	for _, tool := range []string{"one", "two"} {
		busy.Go(func() {
			for ctx.Err() == nil {
				r, err := s.Call(t.Context(), Request{Session: alice, Tool: tool})
				assert.NoError(t, err)
				assert.Equal(t, abi.Success, r.Kind, r.Error)
			}
		})
	}
	busy.Go(func() {
		for ctx.Err() == nil {
			run, err := s.Session(bob).Spawn(t.Context(), SpawnRequest{Tool: "one", Silent: true}) // its record makes room for others
			if !assert.NoError(t, err) {
				return
			}
			ended := s.settled(bob, run.TaskID)
			if ended.Error != nil { // it was spawned for the one before
				assert.Equal(t, "the plugin of one was replaced in the meantime", ended.Error.Message)
			}
		}
	})
	for n := range 100 {
		for _, tool := range []string{"one", "two"} { // what is not compiled needs its file as it was loaded
			require.Equal(t, fmt.Sprint(n), string(s.call(alice, tool, "{}").Value))
		}
		install(n + 1)
		s.reload()
	}
	stop()
	busy.Wait()
	require.Empty(t, s.Problems())
}

// Service.Watch reloads when a plugin is saved.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	save := func(name string, n int) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".wasm"), numbered(name, n).Data, 0o600))
	}
	save("one", 1)
	s, err := Open(t.Context(), Config{Folders: []plugins.Folder{plugins.Dir(dir)}, Watch: true})
	require.NoError(t, err)
	changed := s.ToolsChanged(t.Context())
	for n := range 3 {
		name := fmt.Sprint("new", n)
		save(name, n)
		for _, err := s.Lookup(name); err != nil; _, err = s.Lookup(name) {
			<-changed
		}
	}
	require.NoError(t, s.Close(t.Context()))
	_, open := <-changed
	require.False(t, open)
}

// switching is a folder that changes as a whole.
type switching struct{ now atomic.Pointer[fstest.MapFS] }

func (s *switching) Open(name string) (fs.File, error) { return s.now.Load().Open(name) }
