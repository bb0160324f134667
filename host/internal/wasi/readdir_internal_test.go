package wasi

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/meter"
	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/rootfs"
)

type fuelCounter struct {
	api.MutableGlobal
	left uint64
}

func (c *fuelCounter) Get() uint64     { return c.left }
func (c *fuelCounter) Set(left uint64) { c.left = left }

// TestListingIsSmall: a descriptor keeps few entries of a large directory, however much of
// it was read.
func TestListingIsSmall(t *testing.T) {
	dir := t.TempDir()
	for i := range 1000 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600))
	}
	fs, err := rootfs.Open(dir, rootfs.Options{ReadOnly: true})
	require.NoError(t, err)
	defer fs.Close()
	c := &Call{Ops: &guestcall.Call{Meter: &meter.Meter{Fuel: fuel.NewMeter(1<<40, func() error { return nil }), Counter: new(fuelCounter)}}}
	l := &listing{dir: fs.Folder()}
	used, errno := l.write(c, make([]byte, 1<<20), 0)
	require.Zero(t, errno)
	require.Greater(t, used, 1000*direntBytes)
	require.Equal(t, 256, len(l.kept))
	require.LessOrEqual(t, cap(l.kept), 1024)
}
