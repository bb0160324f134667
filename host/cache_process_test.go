package host_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
)

// requireTidy holds that nobody left a staging directory behind, and that others than this
// user have no access.
func requireTidy(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(filepath.Join(dir, "staging"))
	require.NoError(t, err)
	require.Empty(t, left)
	for _, name := range append(folders(t, dir), append(codes(t, dir), modules(t, dir)...)...) {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, name)
	}
}

// processEnv is set in processes that tests start: what they are to do, and with
// which folder.
const processEnv = "TOOLHOST_TEST_CACHE"

// TestProcess is what such a process does. It is no test by itself.
func TestProcess(t *testing.T) {
	job, dir, ok := strings.Cut(os.Getenv(processEnv), ":")
	if !ok {
		t.Skip("it is started by other tests")
	}
	switch job {
	case "full disk":
		limitFiles(t)
	case "killed":
		h, err := host.New(context.Background(), host.Config{CacheDir: dir})
		require.NoError(t, err)
		callEcho(t, h)
		os.Exit(0) // without Close
	case "reuse":
		require.True(t, cached(t, dir))
		return
	}
	require.NoError(t, useCache(dir))
}

func startProcess(t *testing.T, job, dir string) func() {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestProcess$", "-test.v")
	cmd.Env = append(os.Environ(), processEnv+"="+job+":"+dir)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	return func() { require.NoError(t, cmd.Wait(), out.String()) }
}

// TestCacheOfProcesses: processes that fill the same new folder at the same
// time, while somebody breaks what they write, all get their answers, and what
// is there in the end is whole.
func TestCacheOfProcesses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "on demand")
	var wait []func()
	for range 6 {
		wait = append(wait, startProcess(t, "use", dir))
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, w := range wait {
			w()
		}
	}()
	for n := 0; ; n++ {
		select {
		case <-ended:
			require.NoError(t, useCache(dir))
			startProcess(t, "reuse", dir)()
			require.Len(t, codes(t, dir), 2)
			requireTidy(t, dir)
			return
		default:
		}
		if all, _ := filepath.Glob(filepath.Join(dir, "code", "*", "*")); len(all) > 0 && n%8 == 0 {
			_ = os.Truncate(all[n/8%len(all)], int64(n))
		}
		time.Sleep(time.Millisecond)
	}
}

// TestCacheOnAFullDisk: code that cannot be written is not kept, and nothing fails.
func TestCacheOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	startProcess(t, "full disk", dir)()
	require.Empty(t, codes(t, dir))
	requireTidy(t, dir)
	require.False(t, cached(t, dir))
	require.True(t, cached(t, dir))
}

// TestStagingOfAProcessThatEnded is removed by a later one, however it ended. A host
// that lives makes its own again.
func TestStagingOfAProcessThatEnded(t *testing.T) {
	dir := t.TempDir()
	startProcess(t, "killed", dir)()
	dirs := func() []string {
		found, err := filepath.Glob(filepath.Join(dir, "staging", "*"))
		require.NoError(t, err)
		return found
	}
	require.Len(t, dirs(), 1)

	alive := cachedHost(t, dir, 0)
	require.Len(t, dirs(), 2, "it is too new to be sure")
	callEcho(t, alive)
	old := time.Now().Add(-1000 * time.Hour)
	for _, name := range dirs() {
		require.NoError(t, os.Chtimes(name, old, old))
	}
	cachedHost(t, dir, 0)
	require.Len(t, dirs(), 1)

	callEcho(t, alive)
	require.False(t, found(t, alive, guest{invoke: i32(1)}.wasm()))
	require.True(t, cached(t, dir))
}
