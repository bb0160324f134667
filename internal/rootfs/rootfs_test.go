package rootfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero/experimental/sys"
)

// mount opens dir for the length of the test.
func mount(t testing.TB, dir string, opts Options) *FS {
	t.Helper()
	f, err := Open(dir, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// open opens a file that must open.
func open(t testing.TB, f *FS, path string, flag sys.Oflag) sys.File {
	t.Helper()
	file, errno := f.OpenFile(path, flag, 0o600)
	require.Zero(t, errno, "open %s: %v", path, errno)
	return file
}

// tryOpen reports how opening path ends.
func tryOpen(f *FS, path string, flag sys.Oflag) sys.Errno {
	file, errno := f.OpenFile(path, flag, 0o600)
	if errno == 0 {
		file.Close()
	}
	return errno
}

func write(t testing.TB, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func content(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

// plant fills dir: file (abc), empty/, full/inner (in), link to file, linkdir
// to full, dangling.
func plant(t testing.TB, dir string) {
	t.Helper()
	skipWithoutLinks(t)
	write(t, filepath.Join(dir, "file"), "abc")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "full"), 0o755))
	write(t, filepath.Join(dir, "full", "inner"), "in")
	require.NoError(t, os.Symlink("file", filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink("full", filepath.Join(dir, "linkdir")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
}

func skipWithoutLinks(t testing.TB) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("making symbolic links takes a privilege")
	}
}

func TestOpenFileFlags(t *testing.T) {
	tests := []struct {
		path string
		flag sys.Oflag
		want sys.Errno
	}{
		{"file", sys.O_RDONLY, 0},
		{"file", sys.O_RDWR, 0},
		{"file", sys.O_WRONLY, 0},
		{"file", sys.O_RDWR | sys.O_WRONLY, sys.EINVAL},
		{"file", sys.O_RDWR | sys.O_CREAT, 0},
		{"file", sys.O_RDWR | sys.O_CREAT | sys.O_EXCL, sys.EEXIST},
		{"file", sys.O_RDWR | sys.O_SYNC | sys.O_NONBLOCK, 0},
		{"file", sys.O_RDONLY | sys.O_DIRECTORY, sys.ENOTDIR},
		{"file", sys.O_RDONLY | sys.O_TRUNC, sys.EINVAL},
		{"file", sys.O_WRONLY | sys.O_APPEND, 0},
		{"file/", sys.O_RDONLY, sys.ENOTDIR},
		{"file/x", sys.O_RDONLY, sys.ENOTDIR},
		{"new", sys.O_RDONLY, sys.ENOENT},
		{"new", sys.O_RDWR | sys.O_CREAT, 0},
		{"new", sys.O_RDWR | sys.O_CREAT | sys.O_EXCL, 0},
		{"new", sys.O_RDWR | sys.O_CREAT | sys.O_NOFOLLOW, 0},
		{"new", sys.O_CREAT | sys.O_DIRECTORY, sys.EINVAL},
		{"missing/new", sys.O_RDWR | sys.O_CREAT, sys.ENOENT},
		{"full", sys.O_RDONLY, 0},
		{"full", sys.O_RDONLY | sys.O_DIRECTORY, 0},
		{"full/", sys.O_RDONLY, 0},
		{"full", sys.O_RDWR, sys.EISDIR},
		{"full", sys.O_WRONLY | sys.O_TRUNC, sys.EISDIR},
		{"full", sys.O_RDONLY | sys.O_CREAT, sys.EISDIR},
		{"full/inner", sys.O_RDONLY, 0},
		{"link", sys.O_RDWR, 0},
		{"link", sys.O_RDONLY | sys.O_NOFOLLOW, sys.ELOOP},
		{"link", sys.O_RDONLY | sys.O_NOFOLLOW | sys.O_DIRECTORY, sys.ENOTDIR},
		{"link", sys.O_RDWR | sys.O_CREAT | sys.O_EXCL, sys.EEXIST},
		{"linkdir", sys.O_RDONLY | sys.O_DIRECTORY, 0},
		{"linkdir", sys.O_RDONLY | sys.O_NOFOLLOW, sys.ELOOP},
		{"linkdir/inner", sys.O_RDONLY | sys.O_NOFOLLOW, 0},
		{"dangling", sys.O_RDONLY, sys.ENOENT},
		{"dangling", sys.O_RDWR | sys.O_CREAT, 0},
		{"dangling", sys.O_RDWR | sys.O_CREAT | sys.O_EXCL, sys.EEXIST},
		{"dangling", sys.O_RDWR | sys.O_CREAT | sys.O_NOFOLLOW, sys.ELOOP},
		{".", sys.O_RDONLY, 0},
		{"", sys.O_RDONLY, 0},
		{"/", sys.O_RDONLY | sys.O_DIRECTORY, 0},
		{".", sys.O_RDWR, sys.EISDIR},
		{"/full/inner", sys.O_RDONLY, 0},
		{"./full/../file", sys.O_RDONLY, 0},
	}
	for _, tt := range tests {
		dir := t.TempDir()
		plant(t, dir)
		f := mount(t, dir, Options{})
		require.Equal(t, tt.want, tryOpen(f, tt.path, tt.flag), "%q %b", tt.path, tt.flag)
	}
}

func TestHostilePathsAreErrors(t *testing.T) {
	tests := map[string]sys.Errno{
		"a\x00b":                      sys.EINVAL,
		"\x00":                        sys.EINVAL,
		strings.Repeat("a", 300):      sys.ENAMETOOLONG,
		strings.Repeat("a/", 1<<20):   sys.ENAMETOOLONG,
		strings.Repeat("../", 500):    sys.EPERM,
		"..":                          sys.EPERM,
		"full/../..":                  sys.EPERM,
		"\xff\xfe":                    sys.ENOENT,
		strings.Repeat("./", 1000):    0,
		strings.Repeat("full/../", 5): 0,
	}
	dir := t.TempDir()
	plant(t, dir)

	f := mount(t, dir, Options{})
	for path, want := range tests {
		_, errno := f.Stat(path)
		require.Equal(t, want, errno, "%.40q", path)
		require.Equal(t, want, tryOpen(f, path, sys.O_RDONLY), "%.40q", path)
	}
}

func TestFolderItselfIsNoEntry(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir)
	f := mount(t, dir, Options{})
	for _, path := range []string{"", ".", "/", "./", "full/.."} {
		require.Equal(t, sys.EINVAL, f.Rmdir(path), path)
		require.Equal(t, sys.EINVAL, f.Unlink(path), path)
		require.Equal(t, sys.EINVAL, f.Rename(path, "x"), path)
		require.Equal(t, sys.EINVAL, f.Rename("file", path), path)
		require.Equal(t, sys.EEXIST, f.Mkdir(path, 0o700), path)
		require.Equal(t, sys.EPERM, f.Chmod(path, 0o777), path)
		require.Zero(t, f.Utimens(path, 1000, 1000), path)
	}

	require.Zero(t, f.Rename("file", "..."), "three dots are a name")
}

func TestReadOnlyRefusesEveryChange(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir)
	f := mount(t, dir, Options{ReadOnly: true})
	changes := map[string]func() sys.Errno{
		"open write":    func() sys.Errno { return tryOpen(f, "file", sys.O_WRONLY) },
		"open rw":       func() sys.Errno { return tryOpen(f, "file", sys.O_RDWR) },
		"open truncate": func() sys.Errno { return tryOpen(f, "file", sys.O_WRONLY|sys.O_TRUNC) },
		"open create":   func() sys.Errno { return tryOpen(f, "file", sys.O_CREAT) },
		"mkdir":         func() sys.Errno { return f.Mkdir("x", 0o700) },
		"rmdir":         func() sys.Errno { return f.Rmdir("empty") },
		"unlink":        func() sys.Errno { return f.Unlink("file") },
		"rename":        func() sys.Errno { return f.Rename("file", "x") },
		"link":          func() sys.Errno { return f.Link("file", "x") },
		"symlink":       func() sys.Errno { return f.Symlink("file", "x") },
		"chmod":         func() sys.Errno { return f.Chmod("file", 0o777) },
		"utimens":       func() sys.Errno { return f.Utimens("file", 1, 1) },
	}
	file := open(t, f, "file", sys.O_RDONLY)
	changes["file write"] = func() sys.Errno { _, e := file.Write([]byte("x")); return e }
	changes["file pwrite"] = func() sys.Errno { _, e := file.Pwrite([]byte("x"), 0); return e }
	changes["file truncate"] = func() sys.Errno { return file.Truncate(0) }
	changes["file utimens"] = func() sys.Errno { return file.Utimens(1, 1) }
	changes["dir utimens"] = func() sys.Errno { return open(t, f, "full", sys.O_RDONLY).Utimens(1, 1) }
	for name, change := range changes {
		require.Equal(t, sys.EROFS, change(), name)
	}
	buf := make([]byte, 10)
	n, errno := file.Read(buf)
	require.Zero(t, errno)
	require.Equal(t, "abc", string(buf[:n]))
	require.Zero(t, tryOpen(f, "link", sys.O_RDONLY))

	f = mount(t, dir, Options{ReadOnly: true})
	require.Zero(t, tryOpen(f, "link", sys.O_RDONLY))
	require.False(t, f.Refused(), "nothing was to be changed")
	require.Equal(t, sys.EROFS, f.Mkdir("x", 0o755))
	require.True(t, f.Refused())
}

func TestModesLoseTheirSpecialBits(t *testing.T) {
	dir := t.TempDir()
	f := mount(t, dir, Options{})
	all := fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky | 0o777
	file, errno := f.OpenFile("made", sys.O_RDWR|sys.O_CREAT, all)
	require.Zero(t, errno)
	require.Zero(t, file.Close())
	require.Zero(t, f.Mkdir("dir", all))

	require.Zero(t, f.Chmod("made", all))
	for _, name := range []string{"made", "dir"} {
		fi, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Zero(t, fi.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky), name)
	}

	require.NoError(t, os.Chmod(filepath.Join(dir, "made"), fs.ModeSetuid|0o755))
	st, errno := f.Stat("made")
	require.Zero(t, errno)
	require.Equal(t, fs.FileMode(0o755), st.Mode)
	require.Equal(t, sys.EPERM, tryOpen(f, "made", sys.O_WRONLY), "a setuid program is not the guest's to write")
	require.Zero(t, tryOpen(f, "made", sys.O_RDONLY))
}

func TestHardLinkedFilesAreReadOnly(t *testing.T) {
	outer := t.TempDir()
	dir := filepath.Join(outer, "folder")
	require.NoError(t, os.Mkdir(dir, 0o755))
	write(t, filepath.Join(outer, "secret"), "canary")
	require.NoError(t, os.Link(filepath.Join(outer, "secret"), filepath.Join(dir, "hard")))
	f := mount(t, dir, Options{})

	require.Zero(t, tryOpen(f, "hard", sys.O_RDONLY))
	require.Equal(t, sys.EPERM, tryOpen(f, "hard", sys.O_RDWR))
	require.Equal(t, sys.EPERM, tryOpen(f, "hard", sys.O_WRONLY|sys.O_TRUNC))
	require.Equal(t, sys.EPERM, f.Chmod("hard", 0o777))
	require.Equal(t, sys.EPERM, f.Utimens("hard", 1, 1))
	require.Equal(t, sys.EPERM, open(t, f, "hard", sys.O_RDONLY).Utimens(1, 1))
	require.Zero(t, f.Rename("hard", "moved"), "the name is the folder's own")
	require.Zero(t, f.Unlink("moved"))
	require.Equal(t, "canary", content(t, filepath.Join(outer, "secret")))
}

func TestOpenRefusesWhatIsNoFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "")
	for name, err := range map[string]error{
		"file":    openErr(filepath.Join(dir, "file"), Options{}),
		"missing": openErr(filepath.Join(dir, "missing"), Options{}),
		"empty":   openErr("", Options{}),
	} {
		require.Error(t, err, name)
	}
	require.ErrorIs(t, openErr(filepath.Join(dir, "missing"), Options{}), fs.ErrNotExist)
}

func openErr(dir string, opts Options) error {
	_, err := Open(dir, opts)
	return err
}

func TestCloseClosesWhatTheGuestLeaked(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir)
	before := openDescriptors(t)
	f, err := Open(dir, Options{})
	require.NoError(t, err)
	file := open(t, f, "file", sys.O_RDWR)
	folder := open(t, f, "full", sys.O_RDONLY)
	itself := open(t, f, ".", sys.O_RDONLY)

	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	require.Equal(t, before, openDescriptors(t))

	_, errno := file.Read(make([]byte, 1))
	require.Equal(t, sys.EBADF, errno)
	_, errno = file.Write([]byte("x"))
	require.Equal(t, sys.EBADF, errno)
	_, errno = folder.Readdir(1)
	require.Equal(t, sys.EBADF, errno)
	_, errno = itself.Stat()
	require.Equal(t, sys.EBADF, errno)
	_, errno = f.Stat("file")
	require.Equal(t, sys.EBADF, errno)
	require.Equal(t, sys.EBADF, file.Utimens(1, 1))
	require.Equal(t, sys.EBADF, folder.Utimens(1, 1))
	require.Zero(t, file.Close(), "closing twice is harmless")
	require.Equal(t, sys.ENOENT, tryOpen(f, ".", sys.O_RDONLY), "anything else makes wazero panic")
}

// openDescriptors counts what this process holds open, where the system says.
func openDescriptors(t testing.TB) int {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

func TestConcurrentUseAndClose(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir)
	f, err := Open(dir, Options{})
	require.NoError(t, err)
	shared := open(t, f, "file", sys.O_RDWR)
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			for i := range 200 {
				_, _ = shared.Write([]byte("x"))
				_, _ = shared.Pread(make([]byte, 4), 0)
				_ = shared.SetAppend(i%2 == 0)
				_ = tryOpen(f, "full", sys.O_RDONLY)
				_, _ = f.Stat("link")
			}
		})
	}

	users.Go(func() { _ = f.Close() })
	users.Wait()
	require.NoError(t, f.Close())
	require.Empty(t, f.open)
}
