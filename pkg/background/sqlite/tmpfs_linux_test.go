package sqlite

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// tmpfsDir is set in the process that TestFullDisk starts.
const tmpfsDir = "TOOLHOST_TMPFS_DIR"

// TestFullDisk fills a small disk: a tmpfs, mounted by a process in name spaces
// of its own, which takes no privilege where the system lets users have them.
func TestFullDisk(t *testing.T) {
	if dir := os.Getenv(tmpfsDir); dir != "" {
		fillDisk(t, dir)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
	cmd.Env = append(os.Environ(), tmpfsDir+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if len(out) == 0 || bytes.Contains(out, []byte("--- SKIP")) {
		t.Skipf("no name spaces here: %v", err)
	}
	require.NoError(t, err, "%s", out)
}

func fillDisk(t *testing.T, dir string) {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skip(err)
	}
	ballast := filepath.Join(dir, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 2<<20), 0o600))
	e := opened(t, filepath.Join(dir, "data"))
	require.NoError(t, e.Check(t.Context()))
	rest := filepath.Join(dir, "rest")
	require.Error(t, os.WriteFile(rest, make([]byte, 8<<20), 0o600))
	require.ErrorIs(t, e.Check(t.Context()), engine.ErrFull, "nothing has been stored since")
	require.NoError(t, os.Remove(rest))
	require.NoError(t, e.Check(t.Context()))
	long := newRun("bg_running")
	long.OutputCap = 1 << 30 // its log takes what is left
	require.NoError(t, e.Submit(t.Context(), long))
	l := claimed(t, e, long.ID)
	var stored []string
	var err error
	for i := 0; err == nil && i < 10_000; i++ {
		run := newRun(fmt.Sprintf("bg_%d", i))
		run.Args = json.RawMessage(`"` + strings.Repeat("x", 4000) + `"`)
		if err = e.Submit(t.Context(), run); err == nil {
			stored = append(stored, run.ID)
		}
	}
	require.Error(t, err)
	t.Logf("full after %d runs: %v", len(stored), err)
	written := int64(0)
	for err = nil; err == nil; {
		if err = l.Append(t.Context(), written, stream(written, 100)); err == nil {
			written += 100
		}
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	end := engine.End{Result: json.RawMessage(`"` + strings.Repeat("r", 100_000) + `"`), FinishedAt: time.Now()}
	_, err = l.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, end)
	require.Error(t, err)
	err = l.Report(t.Context(), engine.Beat{Detail: "waiting for room"})
	require.NoError(t, err)
	for _, id := range stored {
		get(t, e, id)
	}
	checkLog(t, e, "bg_running", written)

	require.NoError(t, os.Remove(ballast))
	require.NoError(t, l.Append(t.Context(), written, stream(written, 100)), "there is room again")
	run, err := l.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, end)
	require.NoError(t, err)
	require.Empty(t, run.ArtifactError)
	require.NoError(t, e.Close())
	e = opened(t, filepath.Join(dir, "data"))
	for _, id := range stored {
		get(t, e, id)
	}
	checkLog(t, e, "bg_running", written+100)
	require.Zero(t, e.Stats().Problems)
	require.NoError(t, e.Close())

	require.Error(t, os.WriteFile(rest, make([]byte, 8<<20), 0o600))
	for _, name := range []string{"data", "new"} {
		_, err = Open(t.Context(), filepath.Join(dir, name), Config{})
		require.ErrorIs(t, err, engine.ErrFull, name)
		require.ErrorContains(t, err, "opening the data directory "+filepath.Join(dir, name)+": the disk is full: ")
	}
	require.NoError(t, os.Remove(rest))
	opened(t, filepath.Join(dir, "data"))
}
