//go:build unix

package owned

import (
	"io/fs"
	"os"
	"syscall"
)

// Give gives a file the owner and the group that another file has. It does not
// follow links.
func Give(name string, owner fs.FileInfo) error {
	stat, ok := owner.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return os.Lchown(name, int(stat.Uid), int(stat.Gid))
}

// SameVolume reports whether two files are on the same volume.
func SameVolume(a, b fs.FileInfo) bool {
	x, known := a.Sys().(*syscall.Stat_t)
	y, too := b.Sys().(*syscall.Stat_t)
	return known && too && x.Dev == y.Dev
}

// ownerOf returns the user that a file belongs to. It reports false if that is
// unknown.
func ownerOf(info fs.FileInfo) (int, bool) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid), true
	}
	return 0, false
}
