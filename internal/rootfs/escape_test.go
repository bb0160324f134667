package rootfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero/experimental/sys"
)

// canary is what no guest may ever read. It lies outside the folder, in the
// directory that holds it.
const canary = "the canary sings"

// trap is a folder full of ways out, and what lies outside it.
type trap struct {
	outer, folder string
	before        map[string]string
	mtime         time.Time
}

// wayOut are the planted links, by name: those whose text leaves the folder.
var wayOut = map[string]string{
	"rel":      "../secret",
	"up":       "..",
	"chain1":   "chain2",
	"chain2":   "sub/../rel",
	"inout":    "sub/../../secret",
	"reenter":  "../folder/file",
	"new":      "../made",
	"sub/back": "../..",
	"slash":    "../outdir/",
	"root":     "/",
	"proc":     "/proc/self/root",
	"cwd":      "/proc/self/cwd",
}

func setTrap(t testing.TB) *trap {
	t.Helper()
	skipWithoutLinks(t)
	outer := t.TempDir()
	s := &trap{outer: outer, folder: filepath.Join(outer, "folder")}
	for _, dir := range []string{"folder", "folder/sub", "outdir"} {
		require.NoError(t, os.Mkdir(filepath.Join(outer, dir), 0o755))
	}
	write(t, filepath.Join(outer, "secret"), canary)
	write(t, filepath.Join(outer, "outdir", "secret"), canary)
	write(t, filepath.Join(s.folder, "file"), "inside")
	for name, target := range wayOut {
		require.NoError(t, os.Symlink(target, filepath.Join(s.folder, name)))
	}
	require.NoError(t, os.Symlink(filepath.Join(outer, "secret"), filepath.Join(s.folder, "abs")))
	require.NoError(t, os.Symlink(outer, filepath.Join(s.folder, "absdir")))
	require.NoError(t, os.Symlink(filepath.Join(s.folder, "file"), filepath.Join(s.folder, "absin")))
	s.before, s.mtime = s.outside(t)

	return s
}

// outside describes everything that is not in the folder.
func (s *trap) outside(t testing.TB) (map[string]string, time.Time) {
	t.Helper()
	entries := tree(t, s.outer)
	for name := range entries {
		if strings.HasPrefix(name, "folder"+string(filepath.Separator)) {
			delete(entries, name)
		}
	}
	fi, err := os.Stat(filepath.Join(s.outer, "secret"))
	require.NoError(t, err)
	return entries, fi.ModTime()
}

// check fails if anything outside the folder has changed.
func (s *trap) check(t testing.TB, after string) {
	t.Helper()
	now, mtime := s.outside(t)
	require.Equal(t, s.before, now, after)
	require.Equal(t, s.mtime, mtime, after)
}

// follow are the operations that follow a link at the end of their path.
var follow = map[string]func(*FS, string) sys.Errno{
	"read":     func(f *FS, p string) sys.Errno { return tryRead(f, p, sys.O_RDONLY) },
	"read dir": func(f *FS, p string) sys.Errno { return tryRead(f, p, sys.O_RDONLY|sys.O_DIRECTORY) },
	"write":    func(f *FS, p string) sys.Errno { return tryWrite(f, p, sys.O_WRONLY) },
	"append":   func(f *FS, p string) sys.Errno { return tryWrite(f, p, sys.O_WRONLY|sys.O_APPEND) },
	"truncate": func(f *FS, p string) sys.Errno { return tryWrite(f, p, sys.O_RDWR|sys.O_TRUNC) },
	"create":   func(f *FS, p string) sys.Errno { return tryWrite(f, p, sys.O_RDWR|sys.O_CREAT) },
	"stat":     func(f *FS, p string) sys.Errno { _, e := f.Stat(p); return e },
	"readlink": func(f *FS, p string) sys.Errno { _, e := f.Readlink(p); return e },
	"chmod":    func(f *FS, p string) sys.Errno { return f.Chmod(p, 0o777) },
	"utimens":  func(f *FS, p string) sys.Errno { return f.Utimens(p, 1, 1) },
}

// act are the operations on the entry at the end of their path.
var act = map[string]func(*FS, string) sys.Errno{
	"lstat":       func(f *FS, p string) sys.Errno { _, e := f.Lstat(p); return e },
	"mkdir":       func(f *FS, p string) sys.Errno { return f.Mkdir(p, 0o777) },
	"exclusive":   func(f *FS, p string) sys.Errno { return tryWrite(f, p, sys.O_RDWR|sys.O_CREAT|sys.O_EXCL) },
	"nofollow":    func(f *FS, p string) sys.Errno { return tryRead(f, p, sys.O_RDONLY|sys.O_NOFOLLOW) },
	"unlink":      func(f *FS, p string) sys.Errno { return f.Unlink(p) },
	"rmdir":       func(f *FS, p string) sys.Errno { return f.Rmdir(p) },
	"rename out":  func(f *FS, p string) sys.Errno { return f.Rename("file", p) },
	"rename in":   func(f *FS, p string) sys.Errno { return f.Rename(p, "taken") },
	"rename over": func(f *FS, p string) sys.Errno { return f.Rename(p, "file") },
}

func tryRead(f *FS, path string, flag sys.Oflag) sys.Errno {
	file, errno := f.OpenFile(path, flag, 0)
	if errno != 0 {
		return errno
	}
	defer file.Close()
	buf := make([]byte, 100)
	if n, _ := file.Read(buf); strings.Contains(string(buf[:n]), canary) {
		panic("read the canary through " + path)
	}
	return 0
}

func tryWrite(f *FS, path string, flag sys.Oflag) sys.Errno {
	file, errno := f.OpenFile(path, flag, 0o666)
	if errno != 0 {
		return errno
	}
	defer file.Close()
	_, errno = file.Write([]byte("overwritten"))
	return errno
}

// Paths that pass through the outside: no operation may take them.
func TestNoPathLeadsOut(t *testing.T) {
	paths := []string{
		"../secret", "/../secret", "//../secret", "./../secret", "sub/../../secret", "sub/./../../secret",
		"../../../../../../../../etc/passwd", "../folder/file", "sub/../../folder/file", "../new",
		"up/secret", "up/new", "up/folder/file", "sub/back/secret", "slash/secret", "absdir/secret", "absdir/new",
		"root/etc/passwd", "proc/etc/passwd", "cwd/secret", "sub/../up/secret", "up/./secret", "up//secret",
		"reenter/../secret",
	}
	for _, path := range paths {
		s := setTrap(t)
		f := mount(t, s.folder, Options{})
		for _, ops := range []map[string]func(*FS, string) sys.Errno{follow, act} {
			for name, do := range ops {
				after := fmt.Sprintf("%s %s", name, path)
				require.Equal(t, sys.EPERM, do(f, path), after)
				s.check(t, after)
			}
		}
	}
}

// Links at the end of a path: following them is refused, they themselves are
// entries of the folder.
func TestNoLinkLeadsOut(t *testing.T) {
	links := []string{"abs", "absdir", "absin"}
	for name := range wayOut {
		links = append(links, name)
	}

	want := map[string]sys.Errno{ // zero where not listed
		"mkdir": sys.EEXIST, "exclusive": sys.EEXIST, "nofollow": sys.ELOOP, "rmdir": sys.ENOTDIR,
	}
	for _, link := range links {
		s := setTrap(t)
		f := mount(t, s.folder, Options{})
		for name, do := range follow {
			for _, slash := range []string{"", "/", "/."} {
				after := fmt.Sprintf("%s %s%s", name, link, slash)
				require.Equal(t, sys.EPERM, do(f, link+slash), after)
				s.check(t, after)
			}
		}

		for name, do := range act {
			s := setTrap(t)
			f := mount(t, s.folder, Options{})
			after := fmt.Sprintf("%s %s", name, link)
			require.Equal(t, want[name], do(f, link), after)
			s.check(t, after)
		}

		for name, do := range act {
			s := setTrap(t)
			f := mount(t, s.folder, Options{})
			after := fmt.Sprintf("%s %s/", name, link)
			require.NotZero(t, do(f, link+"/"), after)
			s.check(t, after)
		}
	}
}

// An absolute path of the host means a path of that name inside the folder.
func TestAbsolutePathsStayInside(t *testing.T) {
	s := setTrap(t)
	f := mount(t, s.folder, Options{})
	secret := filepath.ToSlash(filepath.Join(s.outer, "secret"))
	for name, do := range follow {
		require.Equal(t, sys.ENOENT, do(f, secret), name)
	}
	require.Equal(t, sys.ENOENT, f.Rename(secret, "taken"))
	s.check(t, "absolute paths")
}

func TestGuestsMakeNoLinks(t *testing.T) {
	s := setTrap(t)
	f := mount(t, s.folder, Options{})
	for _, target := range []string{"file", "../secret", s.outer + "/secret", "abs"} {
		require.Equal(t, sys.EPERM, f.Symlink(target, "made"))
		require.Equal(t, sys.EPERM, f.Link(target, "made"))
		require.Equal(t, sys.EPERM, f.Link(target, "../made"))
		require.Equal(t, sys.EPERM, f.Symlink(target, "../secret"), "what is outside cannot be told from what is not")
		require.Equal(t, sys.EPERM, f.Symlink(target, "../made"))
		require.Equal(t, sys.EEXIST, f.Symlink(target, "file"))
		require.Equal(t, sys.ENOENT, f.Symlink(target, "made/"))
	}
	_, errno := f.Lstat("made")
	require.Equal(t, sys.ENOENT, errno)
	s.check(t, "links")
}

// Links that stay inside lead where they say, moved or not.
func TestMovedLinksAreJudgedAnew(t *testing.T) {
	s := setTrap(t)
	require.NoError(t, os.Symlink("../file", filepath.Join(s.folder, "sub", "tofile")))
	f := mount(t, s.folder, Options{})
	require.Zero(t, tryRead(f, "sub/tofile", sys.O_RDONLY))
	target, errno := f.Readlink("sub/tofile")
	require.Zero(t, errno)
	require.Equal(t, "../file", target)

	require.Zero(t, f.Rename("sub/tofile", "tofile"))
	require.Equal(t, sys.EPERM, tryRead(f, "tofile", sys.O_RDONLY), "one level up it leaves")
	_, errno = f.Readlink("tofile")
	require.Equal(t, sys.EPERM, errno)
}

// The folder keeps its identity: moved away, it is still what is mounted, and
// what takes its name is not.
func TestMovedFolder(t *testing.T) {
	s := setTrap(t)
	f := mount(t, s.folder, Options{})
	moved := filepath.Join(s.outer, "moved")
	require.NoError(t, os.Rename(s.folder, moved))
	require.NoError(t, os.Symlink("outdir", s.folder))
	require.Equal(t, sys.ENOENT, tryRead(f, "secret", sys.O_RDONLY))
	require.Zero(t, tryWrite(f, "file", sys.O_RDWR))
	require.Equal(t, "overwritten", content(t, filepath.Join(moved, "file")))
}

// A directory opened inside and then moved out by another program lists what it
// holds, and is no way to anything around it.
func TestOpenDirectoryMovedOut(t *testing.T) {
	s := setTrap(t)
	f := mount(t, s.folder, Options{})
	sub := open(t, f, "sub", sys.O_RDONLY)

	require.NoError(t, os.Rename(filepath.Join(s.folder, "sub"), filepath.Join(s.outer, "outdir", "sub")))
	for range 2 {
		dirents, errno := sub.Readdir(10)
		require.Zero(t, errno)
		require.Len(t, dirents, 1)
		require.Equal(t, "back", dirents[0].Name)
		_, errno = sub.Seek(0, 0)
		require.Zero(t, errno)
	}

	for _, path := range []string{"sub/../secret", "sub/secret", "sub"} {
		require.Equal(t, sys.ENOENT, tryRead(f, path, sys.O_RDONLY), path)
	}
}

// Another program swaps links that lead out for files and directories while the
// guest works on them.
func TestSwappedLinksDoNotLeadOut(t *testing.T) {
	s := setTrap(t)
	door, way, parked := filepath.Join(s.folder, "door"), filepath.Join(s.folder, "way"), filepath.Join(s.folder, "parked")
	require.NoError(t, os.Mkdir(way, 0o755))
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}

			_ = os.WriteFile(parked+"file", []byte("inside"), 0o600)
			_ = os.Rename(parked+"file", door)
			_ = os.Symlink("../secret", parked+"link")
			_ = os.Rename(parked+"link", door)
			_ = os.Rename(way, parked)
			_ = os.Symlink("..", way)
			_ = os.Remove(way)
			_ = os.Rename(parked, way)
		}
	})
	f := mount(t, s.folder, Options{MaxBytes: 1 << 40})
	outcomes := map[sys.Errno]int{}
	for range 400 {
		for _, path := range []string{"door", "way/secret", "way/folder/file"} {
			for _, ops := range []map[string]func(*FS, string) sys.Errno{follow, act} {
				for _, do := range ops {
					outcomes[do(f, path)]++
				}
			}
		}
	}

	close(stop)
	swapper.Wait()
	s.check(t, "swapping")
	t.Logf("outcomes: %v", outcomes)
}

// FuzzPath throws paths at every operation.
func FuzzPath(f *testing.F) {
	for name := range wayOut {
		f.Add(name, "taken")
		f.Add(name+"/secret", name+"/made")
	}

	for _, path := range []string{"", ".", "..", "../secret", "/", "//", "sub/../../secret", "a\x00b", "\xff", "file/", "..."} {
		f.Add(path, path)
	}
	f.Add(strings.Repeat("sub/../", 300)+"../secret", "file")
	f.Fuzz(func(t *testing.T, path, to string) {
		s := setTrap(t)
		m := mount(t, s.folder, Options{})
		for _, do := range follow {
			do(m, path)
		}
		_ = m.Rename(path, to)
		_ = m.Rename(to, path)
		_ = m.Symlink(path, to)
		_ = m.Link(path, to)
		for _, do := range act {
			do(m, to)
		}
		for _, do := range follow {
			do(m, to)
		}
		s.check(t, fmt.Sprintf("%q %q", path, to))
	})
}
