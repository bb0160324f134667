package watch

import (
	"fmt"
	"io/fs"
	"syscall"
	"time"
)

// Inode returns the identity of a file, and the time of its last change, which no
// program can set. ok is false if these are unknown.
func Inode(info fs.FileInfo) (inode string, changed time.Time, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", time.Time{}, false
	}
	return fmt.Sprintf("%d %d", stat.Dev, stat.Ino), time.Unix(stat.Ctim.Unix()), true
}
