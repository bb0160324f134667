package rootfs

import (
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero/experimental/sys"
)

func TestMaxOpenFiles(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir)
	f := mount(t, dir, Options{MaxOpenFiles: 3})
	var held []sys.File
	for _, path := range []string{"file", "full", "link"} {
		held = append(held, open(t, f, path, sys.O_RDONLY))
	}
	require.Equal(t, errnoLimit, tryOpen(f, "file", sys.O_RDONLY))
	require.Zero(t, tryOpen(f, ".", sys.O_RDONLY), "the folder itself does not count, once")

	require.Equal(t, errnoLimit, tryOpen(f, ".", sys.O_RDONLY))

	for _, file := range held {
		require.Zero(t, file.Close())
		require.Zero(t, file.Close())
	}

	for range 100 { // neither success nor failure keeps a place
		require.Zero(t, tryOpen(f, "file", sys.O_RDONLY))
		require.Zero(t, tryOpen(f, "full", sys.O_RDONLY))
		require.Equal(t, sys.ENOENT, tryOpen(f, "missing", sys.O_RDONLY))
		require.Equal(t, sys.ENOTDIR, tryOpen(f, "file", sys.O_DIRECTORY))
	}
}

func TestMaxBytes(t *testing.T) {
	const limit = 100_000
	kb := make([]byte, 1000)
	// Each way of writing, from a mount with a 3 byte file: the first use fits
	// exactly, the next byte does not.
	ways := map[string]func(t *testing.T, f *FS, n int64) sys.Errno{
		"write": func(t *testing.T, f *FS, n int64) sys.Errno {
			file := open(t, f, "file", sys.O_WRONLY)
			for ; n >= 1000; n -= 1000 {
				if _, errno := file.Write(kb); errno != 0 {
					return errno
				}
			}
			_, errno := file.Write(kb[:n])
			return errno
		},
		"overwrite": func(t *testing.T, f *FS, n int64) sys.Errno {
			file := open(t, f, "file", sys.O_WRONLY)
			for ; n > 0; n-- {
				if _, errno := file.Pwrite(kb[:1], 0); errno != 0 {
					return errno
				}
			}
			return 0
		},
		"append": func(t *testing.T, f *FS, n int64) sys.Errno {
			_, errno := open(t, f, "file", sys.O_WRONLY|sys.O_APPEND).Write(make([]byte, n))
			return errno
		},
		"truncate": func(t *testing.T, f *FS, n int64) sys.Errno {
			file := open(t, f, "file", sys.O_RDWR)
			st, _ := file.Stat()
			return file.Truncate(st.Size + n)
		},
		"gap by pwrite": func(t *testing.T, f *FS, n int64) sys.Errno {
			file := open(t, f, "file", sys.O_RDWR)
			st, _ := file.Stat()
			_, errno := file.Pwrite(kb[:1], st.Size+n-1)
			return errno
		},
		"gap by seek": func(t *testing.T, f *FS, n int64) sys.Errno {
			file := open(t, f, "file", sys.O_RDWR)
			_, _ = file.Seek(n-1, io.SeekEnd)
			_, errno := file.Write(kb[:1])
			return errno
		},
	}
	for name, spend := range ways {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			plant(t, dir)
			f := mount(t, dir, Options{MaxBytes: limit})
			require.Zero(t, spend(t, f, limit))
			size := len(content(t, filepath.Join(dir, "file")))
			require.Equal(t, errnoLimit, spend(t, f, 1))
			require.Len(t, content(t, filepath.Join(dir, "file")), size, "nothing is written in part")
			require.Zero(t, open(t, f, "file", sys.O_RDWR).Truncate(0), "shrinking is free")
			require.Equal(t, errnoLimit, spend(t, f, 1), "and gives nothing back")
		})
	}
}

func TestNewEntriesCost(t *testing.T) {
	f := mount(t, t.TempDir(), Options{MaxBytes: 4 * EntryCost})
	require.Zero(t, tryOpen(f, "a", sys.O_RDWR|sys.O_CREAT))
	require.Zero(t, tryOpen(f, "a", sys.O_RDWR|sys.O_CREAT), "it exists already")
	require.Zero(t, f.Mkdir("b", 0o700))
	require.Equal(t, sys.EEXIST, f.Mkdir("b", 0o700))
	require.Equal(t, sys.ENOENT, tryOpen(f, "no/c", sys.O_RDWR|sys.O_CREAT))
	require.Equal(t, sys.EEXIST, tryOpen(f, "a", sys.O_RDWR|sys.O_CREAT|sys.O_EXCL))
	require.EqualValues(t, 2*EntryCost, f.bytes)
	require.Zero(t, f.Unlink("a"))
	for i := range 2 {
		require.Zero(t, tryOpen(f, fmt.Sprint(i), sys.O_RDWR|sys.O_CREAT))
	}
	require.Equal(t, errnoLimit, f.Mkdir("c", 0o700))
	require.Equal(t, errnoLimit, tryOpen(f, "c", sys.O_RDWR|sys.O_CREAT))
}

func TestDefaultLimits(t *testing.T) {
	f := mount(t, t.TempDir(), Options{})
	file := open(t, f, "x", sys.O_RDWR|sys.O_CREAT)
	require.Zero(t, file.Truncate(DefaultMaxBytes-EntryCost))
	_, errno := file.Pwrite([]byte("x"), 0)
	require.Equal(t, errnoLimit, errno)
	for range DefaultMaxOpenFiles - 1 {
		open(t, f, "x", sys.O_RDONLY)
	}
	require.Equal(t, errnoLimit, tryOpen(f, "x", sys.O_RDONLY))
}
