package sqlite

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A mapped file that cannot be read counts as damaged. Any other panic remains a panic.
func TestFaultless(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	require.NoError(t, os.WriteFile(path, make([]byte, 4096), 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	data, err := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_SHARED)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	var read byte
	require.NoError(t, faultless(path, func() error { read = data[100]; return nil }))
	require.NoError(t, os.Truncate(path, 0)) // as if the disk had failed
	err = faultless(path, func() error { read = data[100]; return nil })
	require.ErrorIs(t, err, ErrDamaged)
	require.ErrorContains(t, err, path)
	require.Zero(t, read)
	require.PanicsWithValue(t, "other", func() { _ = faultless(path, func() error { panic("other") }) })
	require.NoError(t, syscall.Munmap(data))
}
