//go:build unix

package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNotify: a supervisor is notified once the server answers, and when it shuts down.
func TestNotify(t *testing.T) {
	dir, err := os.MkdirTemp("", "th") // short: the path of a socket is bounded
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	require.NoError(t, err)
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "notify"))
	t.Setenv("TOOLHOST_DATA", filepath.Join(dir, "data"))
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("TOOLHOST_COMPILE", "on_demand")

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var serverErr bytes.Buffer
	go func() { ended <- run(ctx, []string{"serve"}, nil, &bytes.Buffer{}, &serverErr) }()

	require.Equal(t, "READY=1", receive(t, socket))
	var out, errs bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"health"}, nil, &out, &errs), errs.String())
	require.Equal(t, "ready\n", out.String())

	stop()
	require.Equal(t, "STOPPING=1", receive(t, socket))
	require.Zero(t, <-ended, serverErr.String())
	require.NotZero(t, run(t.Context(), []string{"health"}, nil, &out, &errs))
}

func receive(t *testing.T, from *net.UnixConn) string {
	message := make([]byte, 1024)
	n, err := from.Read(message)
	require.NoError(t, err)
	return string(message[:n])
}
