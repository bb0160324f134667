package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Functions of WASI that a guest of [wasiGuest] imports in place of others.
const (
	fnPathOpen = fnPrestat
	fnRenumber = fnArgs
	fnClose    = fnEnv
	fnOther    = fnYield
)

// wasiGuest returns a guest that imports one more function of WASI as fnOther.
func wasiGuest(other string, params string, invoke ...code) guest {
	return guest{data: "new\x00work", invoke: seq(seq(invoke...), i32(0)), change: func(m *wasmbin.Module) {
		m.Imports[fnPathOpen].Name, m.Types[fnPathOpen] = "path_open", sig("iiiiillii", true)
		m.Imports[fnRenumber].Name, m.Types[fnRenumber] = "fd_renumber", sig("ii", true)
		m.Imports[fnClose].Name, m.Types[fnClose] = "fd_close", sig("i", true)
		m.Imports[fnOther].Name, m.Types[fnOther] = other, sig(params, true)
	}}
}

// openNew opens the file new in a folder. It is created, unless only reading is asked for.
func openNew(folder, rights, flags int64) code {
	create := int64(0)
	if rights&(1<<6) != 0 {
		create = 1
	}
	return seq(i32(folder), i32(0), i32(dataAt), i32(3), i32(create), i64(rights), i64(0), i32(flags), i32(300), call(fnPathOpen))
}

const (
	canRead, canWrite = 1 << 1, 1 << 6
	opened            = 300 // address of the descriptor
)

// transfer reads or writes the three bytes of the name of the file.
func transfer(function uint32, fd int64) code {
	return seq(store(16, i32(dataAt)), store(20, i32(3)), tell(wasi(function, fd, 16, 1, 24)))
}

// folderOf is a policy that grants a folder at /work for writing.
func folderOf(dir string) host.Policy {
	return host.Policy{Grant: host.Grant{Files: []host.Mount{{Dir: dir, Path: "/work", Mode: abi.FileWrite}}}}
}

// TestRenumber: files, streams and folders take each other's numbers, in wazero's engine and
// in its interpreter.
func TestRenumber(t *testing.T) {
	g := wasiGuest("path_rename", "iiiiii",
		tell(openNew(3, canRead|canWrite, 0)), tell(load(i32(opened))), // 4
		tell(wasi(fnRenumber, 4, 0)), // the file is stdin now
		transfer(fnFDWrite, 4), transfer(fnFDWrite, 0),
		tell(openNew(3, canRead, 0)), tell(load(i32(opened))), // 4 again
		transfer(fnFDRead, 4),
		tell(wasi(fnRenumber, 4, 2)),                                                        // closes nothing but stderr
		tell(wasi(fnRenumber, 3, 0)),                                                        // the folder; closes the file
		tell(openNew(3, canRead, 0)), tell(openNew(0, canRead, 0)), tell(load(i32(opened))), // 3
		tell(wasi(fnOther, 0, dataAt, 3, 0, dataAt+4, 4)),
		tell(wasi(fnRenumber, 1, 3)), // stdout
		transfer(fnFDWrite, 1), transfer(fnFDWrite, 3),
		tell(wasi(fnClose, 2)), tell(wasi(fnClose, 2)),
	)
	h := newHost(t, nil)
	for _, interpret := range []bool{false, true} {
		t.Run(fmt.Sprintf("interpret %v", interpret), func(t *testing.T) {
			dir := t.TempDir()
			m, err := h.CompileWith(t.Context(), g.wasm(), host.CompileOptions{Interpret: interpret})
			require.NoError(t, err)
			o := do(t.Context(), h, m, host.Call{Policy: folderOf(dir)})
			require.NoError(t, o.err)
			at := len(o.stdout) - 15
			require.Equal(t, "new", o.stdout[at:at+3], "what the guest has written to stdout")
			o.stdout = o.stdout[:at] + o.stdout[at+3:]
			require.Equal(t, []int32{0, 4, 0, errnoBadf, 0, 0, 4, 0, 0, 0, errnoBadf, 0, 3, 0, 0, errnoBadf, 0, 0, errnoBadf}, o.codes())
			content, err := os.ReadFile(filepath.Join(dir, "work"))
			require.NoError(t, err)
			require.Equal(t, "new", string(content))
		})
	}
}

// TestHostileRenumber: numbers that are not open, whatever their size, and a guest that
// renumbers for ever.
func TestHostileRenumber(t *testing.T) {
	o := run(t, wasiGuest("sched_yield", "",
		tell(wasi(fnRenumber, 1, 77)), tell(wasi(fnRenumber, 77, 1)), tell(wasi(fnRenumber, 1, 1<<30)),
		tell(wasi(fnRenumber, -1, 1)), tell(wasi(fnRenumber, 1, -1)), tell(wasi(fnRenumber, 1, 1)),
	), host.Call{})
	require.NoError(t, o.err)
	require.Equal(t, []int32{errnoBadf, errnoBadf, errnoBadf, errnoBadf, errnoBadf, 0}, o.codes())

	o = run(t, wasiGuest("sched_yield", "",
		times(256, drop(openNew(3, canRead|canWrite, 0)), drop(seq(load(i32(opened)), i32(0), call(fnRenumber)))),
		tell(openNew(3, canRead|canWrite, 0)), tell(load(i32(opened))), tell(wasi(fnRenumber, 4, 0)), transfer(fnFDWrite, 0),
	), host.Call{Policy: folderOf(t.TempDir())})
	require.NoError(t, o.err)
	require.Equal(t, []int32{0, 4, errnoNfile, 0}, o.codes())
}

const errnoNfile, errnoNoent = 33, 44

// TestDescriptorStatus: fd_fdstat_get reports how a file was opened: C asks with fcntl.
func TestDescriptorStatus(t *testing.T) {
	const sync, rsync, dsync, appends = 1 << 4, 1 << 3, 1 << 1, 1
	for name, c := range map[string]struct{ rights, flags int64 }{
		"to read":       {canRead, 0},
		"to write":      {canWrite, 0},
		"both":          {canRead | canWrite, 0},
		"synchronously": {canRead | canWrite, sync | rsync | dsync},
		"to append":     {canWrite, appends | sync},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "new"), nil, 0o600))
			o := run(t, wasiGuest("fd_fdstat_get", "ii",
				tell(openNew(3, c.rights, c.flags)), tell(wasi(fnOther, 4, 512)),
				tell(op(0x71, load(i32(520)), i32(canRead|canWrite))), // i32.and
				store(500, load(i32(512))), drop(write(abi.StreamOutput, 502, 2)), drop(write(abi.StreamOutput, 700, 2)),
			), host.Call{Policy: folderOf(dir)})
			require.NoError(t, o.err)
			require.Equal(t, []int32{0, 0, int32(c.rights), int32(c.flags)}, o.codes())
		})
	}
}

// TestDescriptorErrors: numbers that programs act on.
func TestDescriptorErrors(t *testing.T) {
	const errnoNametoolong, errnoNotsock, errnoNotsup = 37, 57, 58
	for function, c := range map[string]struct {
		params string
		invoke code
		want   []int32
	}{
		"fd_prestat_dir_name": {"iii", seq(
			tell(wasi(fnOther, 3, 512, 5)), tell(load(i32(513))), tell(wasi(fnOther, 3, 512, 50)),
			tell(wasi(fnOther, 3, 512, 4)), tell(wasi(fnOther, 3, page-4, 5)), tell(wasi(fnOther, 1, 512, 5)), tell(wasi(fnOther, 4, 512, 5)),
		), []int32{0, 'w' | 'o'<<8 | 'r'<<16 | 'k'<<24, 0, errnoNametoolong, errnoFault, errnoBadf, errnoBadf}},
		"fd_allocate": {"ill", seq(
			tell(seq(i32(3), i64(0), i64(1), call(fnOther))), tell(openNew(3, canRead|canWrite, 0)), tell(seq(i32(4), i64(0), i64(1), call(fnOther))),
		), []int32{errnoBadf, 0, 0}},
		"fd_fdstat_set_rights": {"ill", tell(seq(i32(3), i64(0), i64(0), call(fnOther))), []int32{errnoNotsup}},
		"sock_shutdown":        {"ii", seq(tell(wasi(fnOther, 1, 1)), tell(wasi(fnOther, 9, 1))), []int32{errnoNotsock, errnoBadf}},
	} {
		t.Run(function, func(t *testing.T) {
			o := run(t, wasiGuest(function, c.params, c.invoke), host.Call{Policy: folderOf(t.TempDir())})
			require.NoError(t, o.err)
			require.Equal(t, c.want, o.codes())
		})
	}
}

// TestRenameOutside: it is enough that one of two paths is in no granted folder.
func TestRenameOutside(t *testing.T) {
	o := run(t, wasiGuest("path_rename", "iiiiii",
		tell(openNew(3, canRead|canWrite, 0)), tell(wasi(fnOther, 3, dataAt, 3, -1, dataAt+4, 4)),
		tell(wasi(fnOther, -1, dataAt, 3, 3, dataAt+4, 4)), tell(wasi(fnOther, 3, dataAt, 3, 77, dataAt+4, 4)),
	), host.Call{Policy: folderOf(t.TempDir())})
	require.NoError(t, o.err)
	require.Equal(t, []int32{0, errnoNoent, errnoNoent, errnoBadf}, o.codes())
}

// TestPathOutside: a path in no granted folder, for which Go's runtime has no descriptor, does
// not exist. Programs look for their configuration, and go on.
func TestPathOutside(t *testing.T) {
	for name, policy := range map[string]host.Policy{"no folder": {}, "a folder": folderOf(t.TempDir())} {
		t.Run(name, func(t *testing.T) {
			o := run(t, wasiGuest("path_filestat_get", "iiiii",
				tell(openNew(-1, canRead, 0)), tell(openNew(-1, canRead|canWrite, 0)), tell(openNew(77, canRead, 0)),
				tell(wasi(fnOther, -1, 1, dataAt, 3, 512)), tell(wasi(fnOther, 77, 1, dataAt, 3, 512)), tell(wasi(fnClose, -1)),
			), host.Call{Policy: policy})
			require.NoError(t, o.err)
			require.Equal(t, []int32{errnoNoent, errnoNoent, errnoBadf, errnoNoent, errnoBadf, errnoBadf}, o.codes())
		})
	}
}
