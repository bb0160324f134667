package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file that others cannot read stays so.
func TestRewrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "toolhost.yaml")
	require.NoError(t, rewrite(file, []byte("a")))
	for _, mode := range []os.FileMode{0o600, 0o644} {
		require.NoError(t, os.Chmod(file, mode))
		require.NoError(t, rewrite(file, []byte("b")))
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm())
	}
}
