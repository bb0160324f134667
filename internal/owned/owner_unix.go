//go:build unix

package owned

import (
	"io/fs"
	"syscall"
)

// ownerOf is the user a file belongs to. It is false where that is unknown.
func ownerOf(info fs.FileInfo) (int, bool) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid), true
	}
	return 0, false
}
