//go:build unix

package rootfs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental/sysfs"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// TestGuestStaysInside runs testdata/escape, a real WASI program, on the folder
// of the trap, mounted at /work. What it must print is in want.txt beside it.
func TestGuestStaysInside(t *testing.T) {
	wasm := buildGuest(t, "./testdata/escape")
	s := setTrap(t)
	require.NoError(t, os.Symlink("file", filepath.Join(s.folder, "inlink")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(s.folder, "fifo"), 0o666))
	f := mount(t, s.folder, Options{MaxBytes: 1 << 20, MaxOpenFiles: 50})

	output := runGuest(t, wasm, f, s.outer)
	require.NotContains(t, output, canary)
	require.NotContains(t, output, s.outer, "host paths stay with the host")
	require.Equal(t, guestLines(content(t, "testdata/escape/want.txt")), guestLines(output))
	s.check(t, "guest")
	require.NoError(t, f.Close())
	require.Empty(t, f.open)
}

func buildGuest(t *testing.T, dir string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "guest.wasm")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", out, dir)
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=-buildvcs=false")
	message, err := build.CombinedOutput()
	require.NoError(t, err, string(message))
	return []byte(content(t, out))
}

func runGuest(t *testing.T, wasm []byte, f *FS, args ...string) string {
	t.Helper()
	ctx := t.Context()
	r := wazero.NewRuntime(ctx)
	defer r.Close(ctx)
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	mounts := wazero.NewFSConfig().(sysfs.FSConfig).WithSysFSMount(f, "/work")
	var output, problems bytes.Buffer
	config := wazero.NewModuleConfig().WithArgs(append([]string{"guest"}, args...)...).
		WithFSConfig(mounts).WithStdout(&output).WithStderr(&problems)
	_, err := r.InstantiateWithConfig(ctx, wasm, config)
	require.NoError(t, err, problems.String())
	return output.String()
}

func guestLines(s string) []string {
	return strings.Split(strings.TrimSpace(s), "\n")
}
