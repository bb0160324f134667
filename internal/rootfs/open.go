package rootfs

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/tetratelabs/wazero/experimental/sys"
	wasys "github.com/tetratelabs/wazero/sys"
)

// OpenFile implements [sys.FS]. It uses only the nine permission bits of perm.
//
// O_NONBLOCK changes nothing, as only files that never block can be opened, and O_DSYNC and
// O_RSYNC are treated as O_SYNC. O_TRUNC without write access fails with [sys.EINVAL].
func (f *FS) OpenFile(path string, flag sys.Oflag, perm fs.FileMode) (sys.File, sys.Errno) {
	n, errno := rootName(path)
	if errno == 0 {
		errno = f.checkFlags(flag)
	}
	if errno != 0 {
		return nil, errno
	}
	if file, errno := f.admit(n == "." && !writes(flag)); file != nil || errno != 0 {
		return file, errno
	}

	file, errno := f.openAny(n, flag, perm.Perm())
	if errno != 0 {
		return nil, errno
	}
	if !f.remember(file) {
		_ = file.Close()
		return nil, sys.ENOENT
	}
	return file, 0
}

const accessMask = sys.O_RDONLY | sys.O_RDWR | sys.O_WRONLY

// writes reports whether flag asks to change anything.
func writes(flag sys.Oflag) bool {
	return flag&(accessMask|sys.O_CREAT|sys.O_TRUNC) != 0
}

func (f *FS) checkFlags(flag sys.Oflag) sys.Errno {
	access := flag & accessMask
	switch {
	case access == sys.O_RDWR|sys.O_WRONLY:
		return sys.EINVAL
	case writes(flag) && f.readOnly():
		return sys.EROFS
	case flag&sys.O_TRUNC != 0 && access == sys.O_RDONLY:
		return sys.EINVAL // unspecified in POSIX
	case flag&sys.O_CREAT != 0 && flag&sys.O_DIRECTORY != 0:
		return sys.EINVAL
	}
	return 0
}

// osFlags returns flag in the form for [os.Root.OpenFile], without what openAny does itself.
func osFlags(flag sys.Oflag) int {
	n := map[sys.Oflag]int{sys.O_RDWR: os.O_RDWR, sys.O_WRONLY: os.O_WRONLY}[flag&accessMask]
	if flag&sys.O_APPEND != 0 {
		n |= os.O_APPEND
	}
	if flag&(sys.O_SYNC|sys.O_DSYNC|sys.O_RSYNC) != 0 {
		n |= os.O_SYNC
	}
	return n
}

// openAny looks before it opens, since opening alone can act on a device, and
// checks again what it got, since the entry may have changed in between.
func (f *FS) openAny(n string, flag sys.Oflag, perm fs.FileMode) (sys.File, sys.Errno) {
	exclusive := flag&sys.O_CREAT != 0 && flag&sys.O_EXCL != 0
	look := f.root.Stat
	if exclusive || flag&sys.O_NOFOLLOW != 0 {
		look = f.root.Lstat
	}

	fi, err := look(n)
	switch {
	case errors.Is(err, fs.ErrNotExist) && flag&sys.O_CREAT != 0:
		return f.create(n, flag, perm)
	case err != nil:
		return nil, f.errno(err)
	case exclusive:
		return nil, sys.EEXIST
	}

	if errno := f.openable(fi, flag); errno != 0 {
		return nil, errno
	}
	if !fi.IsDir() {
		return f.openRegular(n, flag, osFlags(flag), 0, fi)
	}

	d, err := f.dirAt(n)
	if err != nil {
		return nil, f.errno(err)
	}
	if flag&sys.O_NOFOLLOW != 0 && !os.SameFile(fi, d.info) {
		_ = d.closeHandles()
		return nil, sys.ELOOP
	}

	return d, 0
}

// create makes a file that did not exist when openAny looked.
func (f *FS) create(n string, flag sys.Oflag, perm fs.FileMode) (file sys.File, errno sys.Errno) {
	osFlag := osFlags(flag) | os.O_CREATE
	if flag&(sys.O_EXCL|sys.O_NOFOLLOW) != 0 {
		osFlag |= os.O_EXCL // which follows no link either
	}
	errno = f.spendOn(EntryCost, func() (errno sys.Errno) {
		file, errno = f.openRegular(n, flag, osFlag, perm, nil)
		return errno
	})
	return file, errno
}

// openRegular opens a regular file. seen is what openAny saw there, or nil.
func (f *FS) openRegular(n string, flag sys.Oflag, osFlag int, perm fs.FileMode, seen fs.FileInfo) (sys.File, sys.Errno) {
	opened, fi, errno := f.openOS(n, osFlag, perm)
	if errno != 0 {
		return nil, errno
	}

	errno = f.openable(fi, flag)
	switch {
	case errno != 0:
	case fi.IsDir(): // swapped in since openAny looked
		errno = sys.EISDIR
	case seen != nil && flag&sys.O_NOFOLLOW != 0 && !os.SameFile(seen, fi):
		errno = sys.ELOOP
	case flag&sys.O_TRUNC != 0 && fi.Size() > 0:
		errno = f.errno(opened.Truncate(0))
	}
	if errno != 0 {
		_ = opened.Close()
		return nil, errno
	}

	w := &file{handle: handle{fs: f, os: opened, info: fi}, flag: flag}
	w.appends.Store(flag&sys.O_APPEND != 0)
	return w, 0
}

// openOS opens a regular file or directory and nothing else.
func (f *FS) openOS(n string, osFlag int, perm fs.FileMode) (*os.File, fs.FileInfo, sys.Errno) {
	file, err := f.root.OpenFile(n, osFlag|openWithoutWaiting, perm)
	if err != nil {
		return nil, nil, f.errno(err)
	}
	fi, err := file.Stat()
	errno := f.errno(err)
	if errno == 0 && !fi.Mode().IsRegular() && !fi.IsDir() {
		errno = sys.EPERM
	}
	if errno != 0 {
		_ = file.Close()
		return nil, nil, errno
	}

	return file, fi, 0
}

// openable says whether a file of this kind may be opened in this way.
func (f *FS) openable(fi fs.FileInfo, flag sys.Oflag) sys.Errno {
	mode := fi.Mode()
	switch {
	case mode.IsDir():
		if writes(flag) {
			return sys.EISDIR
		}
		return 0
	case flag&sys.O_DIRECTORY != 0:
		return sys.ENOTDIR
	case mode&fs.ModeSymlink != 0: // only seen with O_NOFOLLOW
		return sys.ELOOP
	case !mode.IsRegular():
		return sys.EPERM
	case flag&(accessMask|sys.O_TRUNC) != 0:
		return f.changeable(fi, nil)
	}

	return 0
}

// changeable refuses what a guest must not change: special files, files with
// names that may lie outside the folder, and programs that run as their owner.
func (f *FS) changeable(fi fs.FileInfo, err error) sys.Errno {
	if err != nil || fi.IsDir() {
		return f.errno(err)
	}
	mode := fi.Mode()
	if !mode.IsRegular() || mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 || wasys.NewStat_t(fi).Nlink > 1 {
		return sys.EPERM
	}
	return 0
}

// maxPath is the length of the longest path that is accepted, in bytes: PATH_MAX of
// Linux. os.Root walks components one by one and would follow a path of any length.
const maxPath = 4096

// rootName turns a path of the guest into one for the root. Whether it stays
// inside is for os.Root to say: nothing here is a check of confinement.
//
// Leading slashes are dropped because wazero makes them: for a directory the
// guest opened as ".", it passes "/" plus the path below it.
func rootName(guestPath string) (string, sys.Errno) {
	switch {
	case len(guestPath) > maxPath:
		return "", sys.ENAMETOOLONG
	case strings.IndexByte(guestPath, 0) >= 0, strings.ContainsAny(guestPath, forbiddenInNames):
		return "", sys.EINVAL
	}
	return cmp.Or(strings.TrimLeft(guestPath, "/"), "."), 0
}

// forChange is like rootName, for an operation that changes something.
func (f *FS) forChange(guestPath string) (string, sys.Errno) {
	if f.readOnly() {
		return "", sys.EROFS
	}
	return rootName(guestPath)
}

// entryName is like forChange, for operations on a directory entry, which the
// folder itself is not. It drops trailing slashes and reports whether there were
// any.
func (f *FS) entryName(guestPath string) (n string, slash bool, errno sys.Errno) {
	n, errno = f.forChange(guestPath)
	if errno == 0 && path.Clean(n) == "." {
		errno = sys.EINVAL
	}
	trimmed := strings.TrimRight(n, "/")
	return trimmed, trimmed != n, errno
}
