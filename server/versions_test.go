package server

import (
	"bytes"
	"database/sql"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/examples/plugins/script"
	"github.com/toolhost/toolhost/internal/checkpoint"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/runs"
	"github.com/toolhost/toolhost/server/wire"
)

// execVersion is a version of the plugin exec.
func execVersion(t *testing.T, n byte) *fstest.MapFile {
	t.Helper()
	wasm, err := script.FS.ReadFile("exec.wasm")
	require.NoError(t, err)
	if n == 0 {
		return &fstest.MapFile{Data: wasm}
	}
	return &fstest.MapFile{Data: append(bytes.Clone(wasm), 0, 2, 1, 'a'+n)} // a custom section without content
}

// waits lets a run of a bubble begin to wait.
func (s service) waits(id string) {
	s.t.Helper()
	time.Sleep(runs.SuspendAfter + time.Millisecond)
	synctest.Wait()
	require.Equal(s.t, wire.StatusWaiting, s.run(id).Status, s.logs.String())
}

// TestUpdateWhileWaiting: a run that waits continues with the version of its plugin that it
// began with, also after a restart, and new runs have the new one.
func TestUpdateWhileWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := Config{DataDir: t.TempDir()}
		ids := waitingScripts(t, cfg, "a")

		files := fstest.MapFS{"exec.wasm": execVersion(t, 1)}
		s := openFolder(t, scriptConfig(cfg), files)
		require.Equal(t, `"a"`, string(s.settled(alice, ids["a"]).Result), "%+v", s.run(ids["a"]).Error)
		require.Equal(t, "before\n", s.artifact(alice, ids["a"], wire.OutputLog))

		second := s.spawnScript(`await sleep(600); await sleep(600); return await tools.count({text: "b c"}).then(r => r.words)`)
		s.waits(second)
		files["exec.wasm"] = execVersion(t, 2)
		require.Equal(t, []string{"exec"}, s.reload().Changed)
		third := s.spawnScript(`await sleep(600); return "third"`)
		require.Equal(t, `2`, string(s.settled(alice, second).Result), "%+v", s.run(second).Error)
		require.Equal(t, `"third"`, string(s.settled(alice, third).Result))

		require.Len(t, s.kept(), 3)
		require.NoError(t, s.versions.Prune(t.Context()))
		require.Empty(t, s.kept())
		require.NoError(t, s.Close(done()))
	})
}

// kept returns the versions of plugins that are kept, or the files of one.
func (s service) kept(version ...string) (names []string) {
	s.t.Helper()
	all, err := os.ReadDir(filepath.Join(append([]string{s.cfg.DataDir, "versions"}, version...)...))
	require.NoError(s.t, err)
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// TestVersionsStay: the version that a run waits with stays until the run has ended.
func TestVersionsStay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := openScripts(t, Config{DataDir: t.TempDir()})
		id := s.spawnScript(`await sleep(1e8)`)
		s.waits(id)
		require.NoError(t, s.versions.Prune(t.Context()))
		digest := s.run(id).ToolVersion
		require.Len(t, s.kept(digest), 2, "the plugin, and what it starts with")
		state, err := checkpoint.Decode(stateOf(t, s.cfg.DataDir, id), 1<<30)
		require.NoError(t, err)
		data, err := s.versions.Image(t.Context(), digest, hex.EncodeToString(state.Image[:]))
		require.NoError(t, err)
		_, err = checkpoint.DecodeImage(data, state.Image, 1<<30)
		require.NoError(t, err)

		s.stop(alice, id, "")
		s.settled(alice, id)
		require.Equal(t, []string{digest}, s.kept())
		require.NoError(t, s.versions.Prune(t.Context()))
		require.Empty(t, s.kept())
		require.NoError(t, s.Close(done()))
	})
}

// stateOf is the state that a run is stored with.
func stateOf(t *testing.T, dataDir, id string) (data []byte) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dataDir, "state.db"))
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.QueryRow(`SELECT data FROM states JOIN runs ON runs.seq = states.seq WHERE runs.id = ?`, id).Scan(&data))
	return data
}

// TestVersionsRefused: who replaces a plugin may end what waits with it.
func TestVersionsRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *testing.T, cfg *Config, files fstest.MapFS, kept string)
		reason string
	}{
		{"the kept file is gone", func(t *testing.T, _ *Config, _ fstest.MapFS, kept string) { require.NoError(t, os.RemoveAll(kept)) }, "the plugin of exec was replaced in the meantime"},
		{"the kept file is another", func(t *testing.T, _ *Config, _ fstest.MapFS, kept string) {
			require.NoError(t, os.WriteFile(filepath.Join(kept, filepath.Base(kept)+".wasm"), execVersion(t, 2).Data, 0o600))
		}, "the plugin of exec was replaced in the meantime"},
		{"others can write to it", func(t *testing.T, _ *Config, _ fstest.MapFS, kept string) { require.NoError(t, os.Chmod(kept, 0o777)) }, "the plugin of exec was replaced in the meantime"},
		{"the plugin was removed", func(_ *testing.T, _ *Config, files fstest.MapFS, _ string) { delete(files, "exec.wasm") }, "no such tool"},
		{"only the new one is accepted", func(t *testing.T, cfg *Config, files fstest.MapFS, _ string) {
			cfg.Lock.File = filepath.Join(t.TempDir(), "toolhost.lock")
			s := openFolder(t, Config{Grants: cfg.Grants}, files)
			require.NoError(t, cfg.Lock.Accept(s.Plugins()))
			require.NoError(t, s.Close(done()))
		}, "the plugin of exec was replaced in the meantime, and toolhost.lock has only the new version"},
		{"it is granted less", func(_ *testing.T, cfg *Config, _ fstest.MapFS, _ string) { delete(cfg.Grants, "exec") }, "which the operator has not granted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cfg := Config{DataDir: t.TempDir()}
				ids := waitingScripts(t, cfg, "a")
				folders, err := filepath.Glob(filepath.Join(cfg.DataDir, "versions", "*"))
				require.NoError(t, err)
				require.Len(t, folders, 1)
				kept := folders[0]

				cfg = scriptConfig(cfg)
				files := fstest.MapFS{"exec.wasm": execVersion(t, 1)}
				c.change(t, &cfg, files, kept)
				s := openFolder(t, cfg, files)
				run := s.settled(alice, ids["a"])
				require.Equal(t, engine.StatusFailed, run.Status, "%s", run.Result)
				require.Equal(t, engine.KindOrphaned, run.Error.Kind)
				require.Contains(t, run.Error.Message, c.reason)
				require.NotContains(t, run.Error.Message, cfg.DataDir)
				require.Contains(t, s.artifact(alice, ids["a"], wire.OutputLog), "before\n")
				require.NoError(t, s.Close(done()))
			})
		})
	}
}
