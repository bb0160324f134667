package server

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/wire"
)

// backedUp restores a backup of a service into a new folder, which it returns.
func backedUp(t *testing.T, s *Service) (dir string) {
	t.Helper()
	var backup bytes.Buffer
	require.NoError(t, s.Backup(t.Context(), &backup))
	path := filepath.Join(t.TempDir(), "backup.zip")
	require.NoError(t, os.WriteFile(path, backup.Bytes(), 0o600))
	file, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	dir = filepath.Join(t.TempDir(), "data")
	require.NoError(t, Restore(t.Context(), file, dir))
	return dir
}

// What was active at a backup may have been started, continued or ended since. After a
// restore only what may be done twice is done again.
func TestRestoredRuns(t *testing.T) {
	cfg := Config{DataDir: t.TempDir(), Approvals: ApprovalPolicy{Ask: true, Tools: map[string]Decision{"*": DecideAllow, "dangerous": DecideAsk}}}
	names := []string{"keeper", "sleeper", "medium", "dangerous"}
	first := open(t, cfg, names...)
	ended := first.spawn(bob, "medium", `{}`)
	first.settled(bob, ended)
	again, once := first.spawn(alice, "keeper", `{}`), first.spawn(alice, "sleeper", `{}`)
	for id, text := range map[string]string{again: "saved\n", once: "working\n"} {
		for stored := ""; stored != text; time.Sleep(time.Millisecond) {
			data, _ := os.ReadFile(filepath.Join(cfg.DataDir, "runs", id, engine.OutputLog)) // else it is not there yet
			stored = string(data)
		}
	}
	held := first.spawn(bob, "dangerous", `{}`)

	cfg.DataDir = backedUp(t, first.Service)
	later := first.spawn(bob, "keeper", `{}`)
	require.NoError(t, first.Close(done()))

	second := open(t, cfg, names...)
	require.Contains(t, second.logs.String(), "the database is a copy")
	require.Equal(t, engine.StatusSucceeded, second.settled(bob, ended).Status)
	require.Equal(t, strings.Repeat("o", 9000), second.artifact(bob, ended, engine.OutputLog))
	run := second.settled(alice, once)
	require.Equal(t, engine.KindOrphaned, run.Error.Kind)
	require.Contains(t, run.Error.Message, "neither idempotent nor readonly")
	require.Equal(t, "working\n", second.artifact(alice, once, engine.OutputLog))
	for second.run(again).Attempt < 2 {
		time.Sleep(time.Millisecond)
	}
	second.said(alice, again, "saved\n")
	decided, err := second.Session(bob).Run(t.Context(), held)
	require.NoError(t, err)
	require.Equal(t, wire.StatusQueued, decided.Status)
	require.NotEmpty(t, decided.Held, "it needs another approval")
	_, err = second.Session(bob).Run(t.Context(), later)
	require.Error(t, err)
}

// A script that waits has done something, and may have continued since.
func TestRestoredScripts(t *testing.T) {
	var l ledger
	cfg := Config{Tools: l.tools(), DataDir: t.TempDir()}
	s := openScripts(t, cfg)
	id := s.spawnScript(`await tools.put({text: "a"}); await sleep(3600e3); await tools.put({text: "b"})`)
	for s.run(id).Status != wire.StatusWaiting {
		time.Sleep(time.Millisecond)
	}
	cfg.DataDir = backedUp(t, s.Service)
	require.NoError(t, s.Close(done()))

	s = openScripts(t, cfg)
	require.Equal(t, engine.KindOrphaned, s.settled(alice, id).Error.Kind)
	require.Equal(t, []string{"a"}, l.all())
	require.NoError(t, s.Close(done()))
}
