package host_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

const (
	fnReaddir            = fnPrestat
	entriesAt, entriesAs = 8192, 1024
)

// lister is a guest that reads a directory from positions on: for each, it writes the
// errno, the number of bytes and the bytes.
func lister(fd int64, before code, positions ...int64) guest {
	g := guest{change: func(m *wasmbin.Module) {
		m.Imports[fnReaddir].Name, m.Types[fnReaddir] = "fd_readdir", sig("iiili", true)
	}}
	g.invoke = before
	for _, p := range positions {
		g.invoke = seq(g.invoke, tell(readdir(fd, entriesAt, entriesAs, p)), tell(load(i32(countAt))), drop(write(abi.StreamOutput, entriesAt, entriesAs)))
	}
	g.invoke = seq(g.invoke, i32(0))
	return g
}

func readdir(fd, at, size, position int64) code {
	return seq(i32(fd), i32(at), i32(size), i64(position), i32(countAt), call(fnReaddir))
}

// entries returns what a lister has read from each position, and the errors.
func entries(t *testing.T, o outcome) (read [][]string, errnos []int32) {
	t.Helper()
	require.NoError(t, o.err)
	for b := []byte(o.stdout); len(b) > 0; b = b[8+entriesAs:] {
		errno, used := int32(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:]))
		errnos = append(errnos, errno)
		var names []string
		for e := b[8:][:used]; errno == 0 && len(e) >= 24; {
			n := int(binary.LittleEndian.Uint32(e[16:]))
			if len(e) < 24+n {
				break
			}
			names = append(names, fmt.Sprintf("%d %s %d", binary.LittleEndian.Uint64(e), e[24:24+n], e[20]))
			e = e[24+n:]
		}
		read = append(read, names)
	}
	return read, errnos
}

// filesOf is a policy that grants a folder with n files.
func filesOf(t *testing.T, n int) host.Policy {
	dir := t.TempDir()
	for i := range n {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%05d", i)), nil, 0o600))
	}
	return host.Policy{Fuel: host.MaxFuel, Grant: host.Grant{Files: []host.Mount{{Dir: dir, Path: "/work"}}}}
}

// TestReaddirGoesBack: a guest can read a directory from any position that it has seen.
func TestReaddirGoesBack(t *testing.T) {
	for _, n := range []int{100, 5000} {
		policy := filesOf(t, n)
		last := int64(n + 1)
		o := run(t, lister(3, nil, 0, last, 10, 60, 10, 0, 30, 2, last, last+1, last+2, 1<<40), host.Call{Policy: policy})
		read, errnos := entries(t, o)
		require.Equal(t, []int32{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 44, 44}, errnos)

		require.Equal(t, []string{"1 . 3", "2 .. 3"}, read[0][:2])
		require.Len(t, read[1], 1, "the last entry")
		require.True(t, strings.HasPrefix(read[1][0], fmt.Sprintf("%d ", n+2)), read[1])
		require.Equal(t, read[0][10], read[2][0])
		require.Equal(t, read[2], read[4], "back")
		require.Equal(t, read[0], read[5], "to the start")
		require.Equal(t, read[2][20:], read[6][:len(read[2])-20], "and on")
		require.Equal(t, read[0][2:], read[7][:len(read[0])-2])
		require.Equal(t, read[1], read[8])
		require.Empty(t, read[9], "the end")
	}
}

// TestReaddirWhole: reading a directory in small and large pieces finds each entry once.
func TestReaddirWhole(t *testing.T) {
	policy := filesOf(t, 300)
	var positions []int64
	for p := int64(0); p <= 320; p += 20 { // fewer entries than fit
		positions = append(positions, min(p, 302))
	}
	read, _ := entries(t, run(t, lister(3, nil, positions...), host.Call{Policy: policy}))
	seen := map[string]bool{}
	for _, names := range read {
		for _, name := range names {
			seen[name] = true
		}
	}
	require.Len(t, seen, 302)
}

// TestReaddirCharges: entries from memory cost what copying them does.
func TestReaddirCharges(t *testing.T) {
	policy := filesOf(t, 100)
	used := func(position int64) int64 {
		positions := append([]int64{0}, slices.Repeat([]int64{position}, 50)...)
		o := run(t, lister(3, nil, positions...), host.Call{Policy: policy})
		read, _ := entries(t, o)
		require.Equal(t, position == 1, len(read[50]) > 0)
		return o.Usage.Fuel
	}
	require.Equal(t, used(102)+50*entriesAs/64, used(1))
}

// TestHostileReaddir: what is not open or no directory, buffers that do not fit.
func TestHostileReaddir(t *testing.T) {
	policy := filesOf(t, 3)
	g := lister(3, nil)
	g.invoke = seq(
		tell(readdir(1, entriesAt, 100, 0)), tell(readdir(9, entriesAt, 100, 0)), tell(readdir(-1, entriesAt, 100, 0)),
		tell(readdir(3, entriesAt, 23, 0)), tell(readdir(3, page-10, 100, 0)), tell(readdir(3, 0, -1, 0)), tell(readdir(3, entriesAt, 100, -1)),
		tell(seq(i32(3), i32(0), i32(100), i64(0), i32(page-3), call(fnReaddir))),
		tell(readdir(3, entriesAt, 24, 0)), tell(load(i32(countAt))), tell(readdir(3, entriesAt, 50, 0)), tell(load(i32(countAt))), i32(0))
	o := run(t, g, host.Call{Policy: policy})
	require.NoError(t, o.err)
	require.Equal(t, []int32{8, 8, 8, 28, 21, 21, 44, 21, 0, 24, 0, 50}, o.codes())

	policy.Fuel = 1_000_000
	g.invoke = seq(forever(drop(readdir(3, entriesAt, 100, 0))), i32(0))
	require.ErrorIs(t, run(t, g, host.Call{Policy: policy}).err, host.ErrFuel)
}

// TestOpenAsDirectory: a file that is opened as a directory is ENOTDIR, whatever the guest
// wants to do with it.
func TestOpenAsDirectory(t *testing.T) {
	policy := filesOf(t, 1)
	policy.Files[0].Mode = abi.FileWrite
	g := guest{data: "00000", change: func(m *wasmbin.Module) {
		m.Imports[fnPrestat].Name, m.Types[fnPrestat] = "path_open", sig("iiiiillii", true)
	}}
	for _, rights := range []int64{0, 1 << 1, 1 << 14, 1<<1 | 1<<6, -1} {
		g.invoke = seq(g.invoke, tell(seq(i32(3), i32(1), i32(dataAt), i32(5), i32(2), i64(rights), i64(0), i32(0), i32(countAt), call(fnPrestat))))
	}
	g.invoke = seq(g.invoke, i32(0))
	o := run(t, g, host.Call{Policy: policy})
	require.NoError(t, o.err)
	require.Equal(t, []int32{54, 54, 54, 54, 54}, o.codes())
}
