//go:build unix

package host

import (
	"io/fs"
	"os"
	"syscall"
)

// ownerOf is the user a file belongs to. It is false where that is unknown.
func ownerOf(info fs.FileInfo) (int, bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}

// lock takes the lock of a file, which lasts as long as it is open. It is false
// if another process has it.
func lock(file *os.File) bool {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
