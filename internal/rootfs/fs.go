package rootfs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/tetratelabs/wazero/experimental/sys"
	wasys "github.com/tetratelabs/wazero/sys"
)

// Lstat implements [sys.FS]. It also describes links that lead out of the folder.
func (f *FS) Lstat(path string) (wasys.Stat_t, sys.Errno) { return f.statAt(path, f.root.Lstat) }

// Stat implements [sys.FS].
func (f *FS) Stat(path string) (wasys.Stat_t, sys.Errno) { return f.statAt(path, f.root.Stat) }

func (f *FS) statAt(path string, look func(string) (fs.FileInfo, error)) (wasys.Stat_t, sys.Errno) {
	n, errno := rootName(path)
	if errno != 0 {
		return wasys.Stat_t{}, errno
	}
	return f.stat(look(n))
}

// stat describes a file without its setuid, setgid and sticky bits.
func (f *FS) stat(fi fs.FileInfo, err error) (wasys.Stat_t, sys.Errno) {
	if err != nil {
		return wasys.Stat_t{}, f.errno(err)
	}
	st := wasys.NewStat_t(fi)
	st.Mode &= fs.ModeType | fs.ModePerm
	return st, 0
}

// Readlink implements [sys.FS]. For a link that leads out of the folder it fails with
// [sys.EPERM].
func (f *FS) Readlink(path string) (string, sys.Errno) {
	n, errno := rootName(path)
	if errno != 0 {
		return "", errno
	}

	target, err := f.root.Readlink(n)
	if err != nil {
		return "", f.errno(err)
	}
	if _, err := f.root.Stat(n); filepath.IsAbs(target) || f.errno(err) == sys.EPERM {
		return "", sys.EPERM
	}
	return filepath.ToSlash(target), 0
}

// Mkdir implements [sys.FS].
func (f *FS) Mkdir(path string, perm fs.FileMode) sys.Errno {
	n, errno := f.forChange(path)
	if errno != 0 {
		return errno
	}
	return f.spendOn(EntryCost, func() sys.Errno { return f.errno(f.root.Mkdir(n, perm.Perm())) })
}

// Unlink implements [sys.FS].
func (f *FS) Unlink(path string) sys.Errno { return f.remove(path, false) }

// Rmdir implements [sys.FS].
func (f *FS) Rmdir(path string) sys.Errno { return f.remove(path, true) }

// remove removes a directory, or an entry of another kind. [os.Root.Remove] takes
// both, so if another program swaps the entry between the check and the removal, the
// removed entry is still one of the folder, and never a directory with entries.
func (f *FS) remove(path string, dir bool) sys.Errno {
	n, slash, errno := f.entryName(path)
	if errno != 0 {
		return errno
	}
	fi, err := f.root.Lstat(n)

	switch {
	case err != nil:
		return f.errno(err)
	case fi.IsDir() && !dir:
		return sys.EISDIR
	case !fi.IsDir() && (dir || slash):
		return sys.ENOTDIR
	}
	return f.errno(f.root.Remove(n))
}

// Rename implements [sys.FS]. Like POSIX rename, it can replace a file, and an
// empty directory with a directory. Replacing a directory takes two steps.
func (f *FS) Rename(from, to string) sys.Errno {
	oldName, oldSlash, errno := f.entryName(from)
	if errno != 0 {
		return errno
	}
	newName, newSlash, errno := f.entryName(to)
	if errno != 0 {
		return errno
	}
	old, err := f.root.Lstat(oldName)
	if err != nil {
		return f.errno(err)
	}
	if (oldSlash || newSlash) && !old.IsDir() {
		return sys.ENOTDIR
	}

	target, err := f.root.Lstat(newName)
	switch {
	case err != nil || !target.IsDir():
		return f.errno(f.root.Rename(oldName, newName))
	case !old.IsDir():
		return sys.EISDIR
	case os.SameFile(old, target):
		return 0
	case strings.HasPrefix(path.Clean(newName), path.Clean(oldName)+"/"):
		return sys.EINVAL
	}

	// os.Root.Rename refuses any existing directory.
	if err := f.root.Remove(newName); err != nil {
		return f.errno(err)
	}
	err = f.root.Rename(oldName, newName)
	if err != nil { // put back what was there; the reason matters more
		_ = f.root.Mkdir(newName, target.Mode().Perm())
	}
	return f.errno(err)
}

// Link implements [sys.FS]. It always fails with [sys.EPERM].
func (f *FS) Link(_, _ string) sys.Errno {
	if f.readOnly() {
		return sys.EROFS
	}
	return sys.EPERM
}

// Symlink implements [sys.FS]. It always fails: with [sys.EEXIST] if an entry with the name to
// exists, with [sys.ENOENT] if to has the form of a directory's name, as file systems without
// links do, else with [sys.EPERM].
func (f *FS) Symlink(_, to string) sys.Errno {
	n, slash, errno := f.entryName(to)
	if errno != 0 {
		return errno
	}
	_, err := f.root.Lstat(n)
	switch {
	case err == nil:
		return sys.EEXIST
	case slash:
		return sys.ENOENT
	}
	return sys.EPERM
}

// Chmod implements [sys.FS] for the nine permission bits of perm. Only the operator may change
// the mode of the mounted folder itself: for that, Chmod fails with [sys.EPERM].
func (f *FS) Chmod(path string, perm fs.FileMode) sys.Errno {
	return f.changeInode(path, func(file *os.File, fi fs.FileInfo) error {
		if os.SameFile(fi, f.self.info) {
			return sys.EPERM
		}
		return file.Chmod(perm.Perm())
	})
}

// Utimens implements [sys.FS]. Times are exact to the nanosecond on Linux, to 100 nanoseconds
// on Windows, and to the microsecond elsewhere.
func (f *FS) Utimens(path string, atim, mtim int64) sys.Errno {
	return f.changeInode(path, func(file *os.File, _ fs.FileInfo) error { return setTimes(file, atim, mtim) })
}

// changeInode opens what path leads to and changes it through the descriptor,
// so that no link swapped in between can redirect the change.
func (f *FS) changeInode(path string, change func(*os.File, fs.FileInfo) error) sys.Errno {
	n, errno := f.forChange(path)
	if errno != 0 {
		return errno
	}
	if errno := f.changeable(f.root.Stat(n)); errno != 0 {
		return errno
	}

	file, fi, errno := f.openOS(n, attributeAccess, 0)
	if errno != 0 {
		return errno
	}
	defer file.Close()
	if errno := f.changeable(fi, nil); errno != 0 {
		return errno
	}
	return f.errno(change(file, fi))
}
