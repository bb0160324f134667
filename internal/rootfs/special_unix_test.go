//go:build unix

package rootfs

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero/experimental/sys"
)

var everyAccess = []sys.Oflag{
	sys.O_RDONLY, sys.O_WRONLY, sys.O_RDWR, sys.O_WRONLY | sys.O_APPEND,
	sys.O_RDWR | sys.O_TRUNC, sys.O_RDWR | sys.O_CREAT, sys.O_RDONLY | sys.O_NOFOLLOW,
}

// A blocked open would hang the test.
func TestSpecialFilesDoNotOpen(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o666))
	require.NoError(t, os.Symlink("fifo", filepath.Join(dir, "tofifo")))
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	require.NoError(t, err)
	defer socket.Close()
	paths := []string{"fifo", "tofifo", "socket"}
	if os.Geteuid() == 0 { // the null device
		if err := mknodNull(filepath.Join(dir, "null")); err == nil {
			paths = append(paths, "null")
		}
	}

	f := mount(t, dir, Options{})
	for _, path := range paths {
		for _, flag := range everyAccess {
			if path == "tofifo" && flag&sys.O_NOFOLLOW != 0 {
				continue
			}
			require.Equal(t, sys.EPERM, tryOpen(f, path, flag), "%s %b", path, flag)
		}

		require.Equal(t, sys.ENOTDIR, tryOpen(f, path, sys.O_DIRECTORY), path)
		require.Equal(t, sys.EPERM, f.Chmod(path, 0o777), path)
		require.Equal(t, sys.EPERM, f.Utimens(path, 1, 1), path)
		_, errno := f.Stat(path)
		require.Zero(t, errno, path)
		require.Zero(t, f.Rename(path, path+"2"))
		require.Zero(t, f.Unlink(path+"2"))
		if path == "fifo" {
			require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o666))
		}
	}
}

// What the look before an open saw may be gone when it opens. These are the
// opens alone, on what may have been swapped in: a block would hang the test.
func TestSwapBetweenLookAndOpen(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir)
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o666))
	require.NoError(t, os.Symlink("fifo", filepath.Join(dir, "tofifo")))
	f := mount(t, dir, Options{})
	seen, err := os.Lstat(filepath.Join(dir, "full", "inner"))

	require.NoError(t, err)

	for _, path := range []string{"fifo", "tofifo"} {
		for _, flag := range []int{os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREATE} {
			_, _, errno := f.openOS(path, flag, 0o600)
			require.Equal(t, sys.EPERM, errno)
		}
		_, err := f.dirAt(path)
		require.Equal(t, sys.ENOTDIR, f.errno(err))
	}

	_, errno := f.openRegular("full", sys.O_RDONLY, os.O_RDONLY, 0, seen)
	require.Equal(t, sys.EISDIR, errno)
	_, errno = f.openRegular("link", sys.O_RDONLY|sys.O_NOFOLLOW, os.O_RDONLY, 0, seen)
	require.Equal(t, sys.ELOOP, errno, "a link was followed")
	_, errno = f.openRegular("link", sys.O_RDONLY, os.O_RDONLY, 0, seen)
	require.Zero(t, errno)
}

// Another program swaps a FIFO in for a file or directory while the guest opens
// it. Whatever the look before the open saw, the open must come back.
func TestFIFOSwappedInDoesNotBlock(t *testing.T) {
	dir := t.TempDir()
	door := filepath.Join(dir, "door")
	f := mount(t, dir, Options{MaxBytes: 1 << 40})
	stop := make(chan struct{})
	var swapper sync.WaitGroup

	swapper.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}

			_ = os.Remove(door)
			switch i % 3 {
			case 0:
				_ = syscall.Mkfifo(door, 0o666)
			case 1:
				_ = os.WriteFile(door, nil, 0o600)
			case 2:
				_ = os.Mkdir(door, 0o700)
			}
		}
	})
	for range 3000 {
		for _, flag := range everyAccess {
			file, errno := f.OpenFile("door", flag, 0o600)
			if errno != 0 {
				continue
			}
			st, errno := file.Stat()
			require.Zero(t, errno)
			require.True(t, st.Mode.IsRegular() || st.Mode.IsDir(), st.Mode)
			file.Close()
		}
	}

	close(stop)
	swapper.Wait()
}
