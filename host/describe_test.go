package host_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// says makes a guest write the two bytes at dataAt as its manifest.
func says(before ...code) code {
	return seq(seq(before...), drop(write(abi.StreamManifest, dataAt, 2)), i32(0))
}

// TestDescribeIsCanceled: a describe ends with its context, whose cause is the error.
func TestDescribeIsCanceled(t *testing.T) {
	h := hostWith(t, host.Config{})
	gone := errors.New("the operator went away")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	_, err := h.Describe(ctx, guest{describe: seq(forever(), i32(0))}.wasm())
	require.ErrorIs(t, err, gone)
	require.Zero(t, h.Stats().Memory)
}
