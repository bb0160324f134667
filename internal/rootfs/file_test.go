package rootfs

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero/experimental/sys"
)

func TestFileReadsAndWrites(t *testing.T) {
	dir := t.TempDir()
	f := mount(t, dir, Options{})
	file := open(t, f, "x", sys.O_RDWR|sys.O_CREAT)

	n, errno := file.Write([]byte("hello"))
	require.Zero(t, errno)
	require.Equal(t, 5, n)
	n, errno = file.Pwrite([]byte("J"), 0)
	require.Zero(t, errno)
	require.Equal(t, 1, n)
	off, errno := file.Seek(-2, io.SeekEnd)
	require.Zero(t, errno)
	require.EqualValues(t, 3, off)
	buf := make([]byte, 10)
	n, errno = file.Read(buf)
	require.Zero(t, errno)
	require.Equal(t, "lo", string(buf[:n]))
	n, errno = file.Read(buf)
	require.Zero(t, errno)
	require.Zero(t, n, "the end is no error")
	n, errno = file.Pread(buf, 1)
	require.Zero(t, errno)
	require.Equal(t, "ello", string(buf[:n]))
	require.Zero(t, file.Truncate(2))
	require.Zero(t, file.Sync())
	require.Zero(t, file.Datasync())
	require.Equal(t, "Je", content(t, filepath.Join(dir, "x")))

	st, errno := file.Stat()
	require.Zero(t, errno)
	require.EqualValues(t, 2, st.Size)
	dev, _ := file.Dev()
	ino, _ := file.Ino()
	require.Equal(t, st.Dev, dev)
	require.Equal(t, st.Ino, ino)
}

func TestFileRefusals(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir)
	f := mount(t, dir, Options{})
	rw, ro, wo := open(t, f, "file", sys.O_RDWR), open(t, f, "file", sys.O_RDONLY), open(t, f, "file", sys.O_WRONLY)
	buf := []byte("x")
	tests := map[string]struct {
		do   func() (int, sys.Errno)
		want sys.Errno
	}{
		"read of write-only":   {func() (int, sys.Errno) { return wo.Read(buf) }, sys.EBADF},
		"write of read-only":   {func() (int, sys.Errno) { return ro.Write(buf) }, sys.EBADF},
		"pwrite of read-only":  {func() (int, sys.Errno) { return ro.Pwrite(buf, 0) }, sys.EBADF},
		"truncate read-only":   {func() (int, sys.Errno) { return 0, ro.Truncate(0) }, sys.EBADF},
		"pread before start":   {func() (int, sys.Errno) { return rw.Pread(buf, -1) }, sys.EINVAL},
		"pwrite before start":  {func() (int, sys.Errno) { return rw.Pwrite(buf, -1) }, sys.EINVAL},
		"pwrite at the end":    {func() (int, sys.Errno) { return rw.Pwrite(buf, math.MaxInt64) }, sys.EINVAL},
		"truncate to negative": {func() (int, sys.Errno) { return 0, rw.Truncate(-1) }, sys.EINVAL},
		"seek before start":    {func() (int, sys.Errno) { _, e := rw.Seek(-1, io.SeekStart); return 0, e }, sys.EINVAL},
		"seek to data":         {func() (int, sys.Errno) { _, e := rw.Seek(0, 3); return 0, e }, sys.EINVAL},
		"list a file":          {func() (int, sys.Errno) { d, e := rw.Readdir(1); return len(d), e }, sys.EBADF},
	}
	for name, tt := range tests {
		n, errno := tt.do()
		require.Equal(t, tt.want, errno, name)
		require.Zero(t, n, name)
	}

	require.Equal(t, "abc", content(t, filepath.Join(dir, "file")))
	require.Zero(t, f.bytes, "a refused write costs nothing")
}

func TestAppend(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir)
	f := mount(t, dir, Options{MaxBytes: 100})
	file := open(t, f, "file", sys.O_RDWR|sys.O_APPEND)
	require.True(t, file.IsAppend())
	write := func(text string) {
		_, _ = file.Seek(0, io.SeekStart)
		_, errno := file.Write([]byte(text))
		require.Zero(t, errno)
	}
	write("d")
	n, errno := file.Pwrite([]byte("e"), 1<<40)
	require.Zero(t, errno)
	require.Equal(t, 1, n)
	position, _ := file.Seek(0, io.SeekCurrent)
	require.EqualValues(t, 4, position, "it does not move")
	require.Equal(t, "abcde", content(t, filepath.Join(dir, "file")))
	require.EqualValues(t, 2, f.bytes, "there is no gap")

	if runtime.GOOS == "windows" {
		require.Equal(t, sys.ENOTSUP, file.SetAppend(false))
		return
	}
	require.Zero(t, file.SetAppend(false))
	require.False(t, file.IsAppend())
	write("A")
	_, errno = file.Pwrite([]byte("C"), 2)
	require.Zero(t, errno)
	_, errno = file.Write([]byte("B"))
	require.Zero(t, errno)
	require.Equal(t, "ABCde", content(t, filepath.Join(dir, "file")))

	other := open(t, f, "file", sys.O_RDWR)
	require.Zero(t, other.SetAppend(true))
	_, errno = other.Pwrite([]byte("f"), 0)
	require.Zero(t, errno)
	_, errno = other.Write([]byte("g"))
	require.Zero(t, errno)
	require.Equal(t, "ABCdefg", content(t, filepath.Join(dir, "file")))
	_, errno = other.Pwrite(make([]byte, 100), 0)
	require.Equal(t, sys.EIO, errno, "the limit")
}

func TestUtimens(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir)
	f := mount(t, dir, Options{})
	atim, mtim := int64(1_600_000_000_123_456_789), int64(1_500_000_000_654_321_123)
	if exact := map[string]int64{"linux": 1, "windows": 100}[runtime.GOOS]; exact != 1 {
		exact = cmp.Or(exact, 1000)
		atim, mtim = atim/exact*exact, mtim/exact*exact
	}
	setters := map[string]func(atim, mtim int64) sys.Errno{
		"path":   func(a, m int64) sys.Errno { return f.Utimens("file", a, m) },
		"link":   func(a, m int64) sys.Errno { return f.Utimens("link", a, m) },
		"handle": open(t, f, "file", sys.O_RDWR).Utimens,
	}
	for name, set := range setters {
		require.Zero(t, set(0, 0), name)
		require.Zero(t, set(atim, mtim), name)
		st, errno := f.Stat("file")
		require.Zero(t, errno)
		require.EqualValues(t, atim, st.Atim, name)
		require.EqualValues(t, mtim, st.Mtim, name)
		require.Zero(t, set(sys.UTIME_OMIT, 7000), name)
		st, _ = f.Stat("file")
		require.EqualValues(t, atim, st.Atim, name)
		require.EqualValues(t, 7000, st.Mtim, name)
		require.Zero(t, set(9000, sys.UTIME_OMIT), name)
		st, _ = f.Stat("file")
		require.EqualValues(t, 9000, st.Atim, name)
		require.EqualValues(t, 7000, st.Mtim, name)
	}

	require.Zero(t, f.Utimens("full", atim, mtim), "a directory")
	require.Zero(t, open(t, f, "full", sys.O_RDONLY).Utimens(1000, 2000))
	st, _ := f.Stat("full")
	require.EqualValues(t, 2000, st.Mtim)
	require.Equal(t, sys.ENOENT, f.Utimens("dangling", 1, 1))
}

func TestReaddir(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir)
	f := mount(t, dir, Options{})
	folder := open(t, f, ".", sys.O_RDONLY)
	want := map[string]string{
		"file": "-", "empty": "d", "full": "d", "link": "L", "linkdir": "L", "dangling": "L",
	}
	for range 2 { // the second time after going back
		got := map[string]string{}
		for {
			dirents, errno := folder.Readdir(4)
			require.Zero(t, errno)
			for _, e := range dirents {
				got[e.Name] = e.Type.String()[:1]
				st, errno := f.Lstat(e.Name)
				require.Zero(t, errno)
				require.Equal(t, st.Ino, e.Ino)
			}
			if len(dirents) < 4 {
				break
			}
		}

		require.Equal(t, want, got)
		write(t, filepath.Join(dir, "late"), "")
		want["late"] = "-"
		_, errno := folder.Seek(0, io.SeekStart)
		require.Zero(t, errno)
	}

	_, errno := folder.Seek(1, io.SeekStart)
	require.Equal(t, sys.EISDIR, errno)
	_, errno = folder.Read(make([]byte, 1))
	require.Equal(t, sys.EISDIR, errno)
	isDir, errno := folder.IsDir()
	require.Zero(t, errno)
	require.True(t, isDir)
}

func TestReaddirOfAHugeDirectoryIsBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range maxDirents {
		write(t, filepath.Join(dir, fmt.Sprint(i)), "")
	}
	f := mount(t, dir, Options{})
	folder := open(t, f, ".", sys.O_RDONLY)
	dirents, errno := folder.Readdir(math.MaxInt32)
	require.Zero(t, errno)
	require.Len(t, dirents, maxDirents)

	write(t, filepath.Join(dir, "one more"), "")
	_, errno = folder.Seek(0, io.SeekStart)
	require.Zero(t, errno)
	_, errno = folder.Readdir(math.MaxInt32)
	require.Equal(t, sys.ERANGE, errno, "cut short it would look complete")
	_, errno = folder.Seek(0, io.SeekStart)
	require.Zero(t, errno)

	var total int
	for {
		dirents, errno := folder.Readdir(1000)
		require.Zero(t, errno)
		total += len(dirents)
		if len(dirents) < 1000 {
			break
		}
	}

	require.Equal(t, maxDirents+1, total)
}
