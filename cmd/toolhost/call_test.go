package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
)

// Who interrupts a command that waits for its arguments has ended it.
func TestArgumentsInterrupted(t *testing.T) {
	in, typed := io.Pipe()
	defer typed.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	go interrupt()
	_, err := (&app{ui: ui{in: in}}).arguments(ctx, []string{"-"})
	require.ErrorIs(t, err, context.Canceled)
}

// Too large arguments are a limit, however they come.
func TestArgumentsLimit(t *testing.T) {
	large := `{"text":"` + strings.Repeat("a", server.MaxArgs) + `"}`
	file := filepath.Join(t.TempDir(), "large.json")
	require.NoError(t, os.WriteFile(file, []byte(large), 0o600))

	for _, from := range []string{large, "@" + file, "-"} {
		u := &ui{in: strings.NewReader(large)}
		_, err := u.arguments(t.Context(), []string{from})
		d := diagnose(t.Context(), err)
		require.Equal(t, exitLimit, d.exit, "%.8s", from)
		require.Equal(t, "the arguments have more than 8388608 bytes, the limit", d.Message)
	}
}
