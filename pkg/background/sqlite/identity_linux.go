package sqlite

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// An identity distinguishes a file from others with the same name.
type identity struct {
	major, minor uint32
	inode        uint64
}

// identify returns the identity of the file at a path. It does not query the
// times of the file: since Linux 6.13 that makes the next write store a new
// one, which slowed each commit by a third.
func identify(path string) (identity, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_INO, &st); err != nil {
		return identity{}, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	return identity{st.Dev_major, st.Dev_minor, st.Ino}, nil
}

func (a identity) same(b identity) bool { return a == b }
