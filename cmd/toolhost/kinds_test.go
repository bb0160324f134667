package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSizes: the case of a unit makes no difference.
func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"1048576": 1 << 20, "64MiB": 64 << 20, "64mib": 64 << 20, "64 MB": 64e6, "10mb": 10e6, "0.5gib": 1 << 29, "7b": 7,
	} {
		n, ok := sizeOf(text)
		require.True(t, ok, text)
		require.Equal(t, want, n, text)
	}
	for _, text := range []string{"64M", "64 m", "MiB", "-1MiB", "1e3", "1PiB"} {
		_, ok := sizeOf(text)
		require.False(t, ok, text)
	}
}
