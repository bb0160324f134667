package rootfs

import (
	"path"
	"strings"

	"github.com/tetratelabs/wazero/experimental/sys"
)

// maxPath is the longest path taken, in bytes: PATH_MAX of Linux. os.Root
// walks components one by one and would follow a path of any length.
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
	n := strings.TrimLeft(guestPath, "/")
	if n == "" {
		return ".", 0
	}
	return n, 0
}

// forChange is rootName for an operation that changes something.
func (f *FS) forChange(guestPath string) (string, sys.Errno) {
	if f.readOnly {
		return "", sys.EROFS
	}
	return rootName(guestPath)
}

// entryName is forChange for operations on a directory entry, which the folder
// itself is not. It drops trailing slashes and reports whether there were any.
func (f *FS) entryName(guestPath string) (n string, slash bool, errno sys.Errno) {
	n, errno = f.forChange(guestPath)
	if errno != 0 {
		return "", false, errno
	}
	if path.Clean(n) == "." {
		return "", false, sys.EINVAL
	}
	trimmed := strings.TrimRight(n, "/")
	return trimmed, trimmed != n, 0
}
