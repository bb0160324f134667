package main

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
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
