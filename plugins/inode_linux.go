package plugins

import (
	"fmt"
	"io/fs"
	"syscall"
	"time"
)

// inodeOf is which file of the system it is, and when it, or what the system
// says of it, was last changed. No program can set that time.
func inodeOf(info fs.FileInfo) (inode string, changed time.Time, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", time.Time{}, false
	}
	return fmt.Sprintf("%d %d", stat.Dev, stat.Ino), time.Unix(stat.Ctim.Unix()), true
}
