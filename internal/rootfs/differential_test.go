package rootfs

import (
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/experimental/sysfs"
)

// TestLikeDirFS runs random ordinary operations on this package and on wazero's
// DirFS, in two copies of one folder. They must answer alike and leave the same
// files behind.
func TestLikeDirFS(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("DirFS leaves some errors to the system; these are compared with Linux")
	}
	for seed := range uint64(40) {
		ours, theirs := t.TempDir(), t.TempDir()
		plant(t, ours)
		plant(t, theirs)
		a := &script{fs: mount(t, ours, Options{MaxOpenFiles: 1000})}
		b := &script{fs: sysfs.DirFS(theirs)}
		random := rand.New(rand.NewPCG(seed, 1))
		var log []string
		for range 150 {
			op := randomOp(random)
			got, want := a.do(op), b.do(op)
			log = append(log, fmt.Sprintf("%v: %s", op, want))
			require.Equal(t, want, got, "seed %d\n%s", seed, strings.Join(log, "\n"))
		}

		a.closeAll()
		b.closeAll()
		require.Equal(t, tree(t, theirs), tree(t, ours), "seed %d", seed)
	}
}

// op is one operation. Those on files take the open file numbered file.
type op struct {
	verb     string
	path, to string
	flag     sys.Oflag
	file, n  int
}

// script runs operations on one of the two.
type script struct {
	fs    sys.FS
	files []sys.File
}

func randomOp(r *rand.Rand) op {
	paths := []string{
		"file", "link", "linkdir", "dangling", "empty", "full", "full/inner", "linkdir/inner",
		"a", "full/a", "empty/a", "empty/d", "d", "missing/a", "full/", "full/../file", "./a", "//a",
	}
	verbs := []string{
		"open", "open", "open", "open", "stat", "lstat", "mkdir", "rmdir", "unlink", "rename", "rename",
		"readlink", "chmod", "utimens", "read", "pread", "write", "pwrite", "seek", "truncate", "fstat",
		"futimens", "readdir", "append", "close",
	}
	flags := []sys.Oflag{
		sys.O_RDONLY, sys.O_RDWR, sys.O_WRONLY, sys.O_RDWR | sys.O_CREAT, sys.O_RDWR | sys.O_CREAT | sys.O_EXCL,
		sys.O_RDWR | sys.O_TRUNC, sys.O_WRONLY | sys.O_CREAT | sys.O_TRUNC, sys.O_WRONLY | sys.O_APPEND,
		sys.O_RDONLY | sys.O_DIRECTORY, sys.O_RDONLY | sys.O_NOFOLLOW, sys.O_RDWR | sys.O_CREAT | sys.O_NOFOLLOW,
	}

	return op{
		verb: verbs[r.IntN(len(verbs))],
		path: paths[r.IntN(len(paths))],
		to:   paths[r.IntN(len(paths))],
		flag: flags[r.IntN(len(flags))],
		file: r.IntN(8),
		n:    r.IntN(20),
	}
}

// do runs o and describes the outcome.
func (s *script) do(o op) string {
	switch o.verb {
	case "open":
		if o.path == "full/" && o.flag&sys.O_CREAT != 0 { // EISDIR there in every case, ENOTDIR here if it is not a folder
			return ""
		}
		file, errno := s.fs.OpenFile(o.path, o.flag, 0o644)
		if errno != 0 {
			return outcome(errno)
		}
		s.files = append(s.files, file)
		isDir, errno := file.IsDir()
		return outcome(errno, isDir, file.IsAppend())
	case "stat":
		st, errno := s.fs.Stat(o.path)
		return outcome(errno, st.Mode, st.Nlink, sizeOf(st.Mode, st.Size))
	case "lstat":
		st, errno := s.fs.Lstat(o.path)
		return outcome(errno, st.Mode, st.Nlink, sizeOf(st.Mode, st.Size))
	case "mkdir":
		errno := s.fs.Mkdir(o.path, 0o755)
		if errno == sys.ENOTDIR { // DirFS turns it into ENOENT
			errno = sys.ENOENT
		}
		return outcome(errno)
	case "rmdir":
		return outcome(s.fs.Rmdir(o.path))
	case "unlink":
		return outcome(s.fs.Unlink(o.path))
	case "rename":
		if o.path == o.to { // DirFS does not look whether it exists
			return ""
		}
		errno := s.fs.Rename(o.path, o.to)
		if errno == sys.ENOTDIR { // when the other path has no file as well, which error comes first is open
			errno = sys.ENOENT
		}
		return outcome(errno)
	case "readlink":
		target, errno := s.fs.Readlink(o.path)
		return outcome(errno, target)
	case "chmod":
		return outcome(s.fs.Chmod(o.path, 0o700))
	case "utimens":
		return outcome(s.fs.Utimens(o.path, 5, int64(o.n)*1e9))
	}

	if len(s.files) == 0 {
		return ""
	}
	return s.doFile(o, s.files[o.file%len(s.files)])
}

func (s *script) doFile(o op, file sys.File) string {
	buf := []byte(strings.Repeat("x", o.n))
	isDir, _ := file.IsDir()
	switch {
	case o.verb == "read" && o.n > 0: // DirFS does not look what it is when there is nothing to do
		n, errno := file.Read(buf)
		return outcome(errno, string(buf[:n]))
	case o.verb == "pread" && o.n > 0:
		n, errno := file.Pread(buf, int64(o.n))
		return outcome(errno, string(buf[:n]))
	case o.verb == "write" && o.n > 0:
		n, errno := file.Write(buf)
		return outcome(errno, n)
	case o.verb == "pwrite" && o.n > 0 && !file.IsAppend(): // EIO there
		n, errno := file.Pwrite(buf, int64(o.n))
		return outcome(errno, n)
	case o.verb == "seek" && !isDir:
		off, errno := file.Seek(int64(o.n-5), o.n%3)
		return outcome(errno, off)
	case o.verb == "truncate":
		errno := file.Truncate(int64(o.n))
		if errno == sys.EINVAL { // Linux, of a handle for reading; POSIX allows both
			errno = sys.EBADF
		}
		return outcome(errno)
	case o.verb == "fstat":
		st, errno := file.Stat()
		return outcome(errno, st.Mode, sizeOf(st.Mode, st.Size))
	case o.verb == "futimens":
		return outcome(file.Utimens(5, 6))
	case o.verb == "readdir" && isDir:
		_, errno := file.Seek(0, io.SeekStart)
		dirents, errno2 := file.Readdir(100)
		var names []string
		for _, e := range dirents {
			names = append(names, fmt.Sprint(e.Name, e.Type))
		}
		slices.Sort(names)
		return outcome(errno, errno2, names)
	case o.verb == "close":
		s.files = slices.DeleteFunc(s.files, func(f sys.File) bool { return f == file })
		return outcome(file.Close())
	}

	return ""
}

func (s *script) closeAll() {
	for _, f := range s.files {
		f.Close()
	}
}

// outcome is the error, or the results of a success.
func outcome(errno sys.Errno, results ...any) string {
	if errno != 0 {
		return errno.Error()
	}
	return fmt.Sprint(results...)
}

// sizeOf leaves out the size of directories, which the system chooses.
func sizeOf(mode fs.FileMode, size int64) int64 {
	if mode.IsDir() {
		return 0
	}
	return size
}

// tree lists what is in dir: names, modes, contents and link texts.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	entries := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}

		text := fi.Mode().String()
		switch {
		case fi.Mode().IsRegular():
			text += " " + content(t, path)
		case fi.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += " " + target
		}

		name, err := filepath.Rel(dir, path)
		entries[name] = text
		return err
	}))

	return entries
}
