package host_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// fewFiles is set in the process TestTooManyOpenFiles starts.
const fewFiles = "TOOLHOST_FEW_FILES"

// A process that can open no more files says so. The operator's grant is in
// order: it is no denial.
func TestTooManyOpenFiles(t *testing.T) {
	if os.Getenv(fewFiles) != "" {
		runOutOfFiles(t)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTooManyOpenFiles$", "-test.v")
	cmd.Env = append(os.Environ(), fewFiles+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func runOutOfFiles(t *testing.T) {
	h := newHost(t, nil)
	m := worldPlugin.module(t, h)
	dir := t.TempDir()
	call := host.Call{Args: []byte(`{"do":"exit"}`), Policy: host.Policy{Grant: host.Grant{Files: []host.Mount{{Dir: dir, Path: "/work"}}}}}
	_, err := h.Call(t.Context(), m, call)
	require.NoError(t, err)

	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	failed := 0
	for room := uint64(0); room < 4; room++ { // a folder takes three
		next, err := os.Open(dir)
		require.NoError(t, err)
		limit.Cur = uint64(next.Fd()) + room
		require.NoError(t, next.Close())
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
		r, err := h.Call(t.Context(), m, call)
		limit.Cur = limit.Max
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
		if err == nil {
			continue
		}
		failed++
		require.ErrorIs(t, err, host.ErrFiles)
		require.NotErrorIs(t, err, host.ErrDenied)
		require.Equal(t, abi.Internal, r.Kind)
		require.Equal(t, "too many open files on this host; try again later: the folder granted as /work cannot be opened", r.Error)
	}
	require.Greater(t, failed, 1)
}
