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

// Lstat implements [sys.FS]. It also describes links that leave the folder.
func (f *FS) Lstat(path string) (wasys.Stat_t, sys.Errno) {
	return f.stat(path, f.root.Lstat)
}

// Stat implements [sys.FS].
func (f *FS) Stat(path string) (wasys.Stat_t, sys.Errno) {
	return f.stat(path, f.root.Stat)
}

func (f *FS) stat(path string, stat func(string) (fs.FileInfo, error)) (wasys.Stat_t, sys.Errno) {
	n, errno := rootName(path)
	if errno != 0 {
		return wasys.Stat_t{}, errno
	}
	fi, err := stat(n)
	if err != nil {
		return wasys.Stat_t{}, f.errno(err)
	}
	return statOf(fi), 0
}

// statOf describes a file without its setuid, setgid and sticky bits.
func statOf(fi fs.FileInfo) wasys.Stat_t {
	st := wasys.NewStat_t(fi)
	st.Mode &= fs.ModeType | fs.ModePerm
	return st
}

// Readlink implements [sys.FS]. The text of a link that leaves the folder is
// refused with [sys.EPERM].
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
	if errno := f.limits.spend(EntryCost); errno != 0 {
		return errno
	}
	if err := f.root.Mkdir(n, perm.Perm()); err != nil {
		f.limits.refund(EntryCost)
		return f.errno(err)
	}
	return 0
}

// forChange is rootName for an operation that changes something.
func (f *FS) forChange(path string) (string, sys.Errno) {
	if f.readOnly {
		return "", sys.EROFS
	}
	return rootName(path)
}

// Unlink implements [sys.FS].
func (f *FS) Unlink(path string) sys.Errno {
	return f.remove(path, func(isDir, slash bool) sys.Errno {
		switch {
		case isDir:
			return sys.EISDIR
		case slash:
			return sys.ENOTDIR
		}
		return 0
	})
}

// Rmdir implements [sys.FS].
func (f *FS) Rmdir(path string) sys.Errno {
	return f.remove(path, func(isDir, _ bool) sys.Errno {
		if !isDir {
			return sys.ENOTDIR
		}
		return 0
	})
}

// remove removes an entry of the kind that allow accepts. [os.Root.Remove]
// takes both kinds, so should another program swap the entry between look and
// removal, what goes is still an entry of the folder, never of a full one.
func (f *FS) remove(path string, allow func(isDir, slash bool) sys.Errno) sys.Errno {
	if f.readOnly {
		return sys.EROFS
	}
	n, slash, errno := entryName(path)
	if errno != 0 {
		return errno
	}

	fi, err := f.root.Lstat(n)
	if err != nil {
		return f.errno(err)
	}
	if errno := allow(fi.IsDir(), slash); errno != 0 {
		return errno
	}

	return f.errno(f.root.Remove(n))
}

// Rename implements [sys.FS]. Like rename in POSIX it replaces a file, or an
// empty directory by a directory; the latter in two steps.
func (f *FS) Rename(from, to string) sys.Errno {
	if f.readOnly {
		return sys.EROFS
	}
	oldName, oldSlash, errno := entryName(from)
	if errno != 0 {
		return errno
	}

	newName, newSlash, errno := entryName(to)
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
	if err == nil && target.IsDir() {
		return f.renameOverDir(oldName, newName, old, target)
	}
	return f.errno(f.root.Rename(oldName, newName))
}

func (f *FS) renameOverDir(oldName, newName string, old, target fs.FileInfo) sys.Errno {
	switch {
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
	err := f.root.Rename(oldName, newName)
	if err != nil { // put back what was there; the reason matters more
		_ = f.root.Mkdir(newName, target.Mode().Perm())
	}

	return f.errno(err)
}

// Link implements [sys.FS] by refusing: [sys.EPERM].
func (f *FS) Link(_, _ string) sys.Errno { return f.refuseLink() }

// Symlink implements [sys.FS] by refusing: [sys.EPERM].
func (f *FS) Symlink(_, _ string) sys.Errno { return f.refuseLink() }

func (f *FS) refuseLink() sys.Errno {
	if f.readOnly {
		return sys.EROFS
	}
	return sys.EPERM
}

// Chmod implements [sys.FS] for the nine permission bits of perm. Who may enter
// the folder itself is for the operator to say: [sys.EPERM].
func (f *FS) Chmod(path string, perm fs.FileMode) sys.Errno {
	return f.changeInode(path, func(file *os.File, fi fs.FileInfo) error {
		if os.SameFile(fi, f.self) {
			return sys.EPERM
		}
		return file.Chmod(perm.Perm())
	})
}

// Utimens implements [sys.FS]. Times are exact to the nanosecond on Linux, the
// microsecond on BSD and macOS, and 100 nanoseconds on Windows.
func (f *FS) Utimens(path string, atim, mtim int64) sys.Errno {
	return f.changeInode(path, func(file *os.File, _ fs.FileInfo) error {
		return setTimes(file, atim, mtim)
	})
}

// changeInode opens what path leads to and changes it through the descriptor,
// so that no link swapped in between can redirect the change.
func (f *FS) changeInode(path string, change func(*os.File, fs.FileInfo) error) sys.Errno {
	n, errno := f.forChange(path)
	if errno != 0 {
		return errno
	}
	fi, err := f.root.Stat(n)
	if err != nil {
		return f.errno(err)
	}
	if errno := changeable(fi); errno != 0 {
		return errno
	}

	file, fi, errno := f.openOS(n, attributeAccess, 0)
	if errno != 0 {
		return errno
	}
	defer file.Close()
	if errno := changeable(fi); errno != 0 {
		return errno
	}

	return f.errno(change(file, fi))
}
