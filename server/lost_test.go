package server

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background"
)

// A database that is deleted under the service is one of the problems an
// operator is shown, and nothing is acknowledged any more.
func TestStorageThatIsLost(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("nobody can delete a file that is open")
	}
	dir := filepath.Join(t.TempDir(), "data")
	s := open(t, Config{DataDir: dir}, "echo")
	require.NoError(t, s.StorageErr())
	require.Empty(t, s.Unusable())
	require.NoError(t, os.Remove(filepath.Join(dir, "state.db")))

	_, err := s.Spawn(t.Context(), SpawnRequest{Session: "s", Tool: "echo"})
	require.ErrorIs(t, err, background.ErrStorageLost)
	require.ErrorIs(t, s.StorageErr(), background.ErrStorageLost)
	require.Len(t, s.Unusable(), 1)
	require.Contains(t, s.Unusable()[0].Err.Error(), "deleted or replaced")
	require.Equal(t, 1, s.Stats().Storage.Problems)
	require.NotEmpty(t, s.Stats().Storage.Failed)
}

// While the service closes it can say what it waits for.
func TestWaitsFor(t *testing.T) {
	s := open(t, Config{DataDir: filepath.Join(t.TempDir(), "data")}, "sleeper")
	require.Empty(t, s.WaitsFor(), "it does not close")
	run, err := s.Spawn(t.Context(), SpawnRequest{Session: "s", Tool: "sleeper"})
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	closed := make(chan error, 1)
	go func() { closed <- s.Close(ctx) }()
	for !s.Closed() || s.WaitsFor() == "" || s.WaitsFor() == "a reload of the plugins" {
		time.Sleep(time.Millisecond)
	}
	require.Regexp(t, `^runs and calls: `+run.ID+` of sleeper, since \d\d:\d\d:\d\d`, s.WaitsFor())
	cancel()
	require.NoError(t, <-closed)
	require.Empty(t, s.WaitsFor())
	require.NotEqual(t, background.StatusRunning, run.Status)
}
