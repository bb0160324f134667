package plugins

import (
	"fmt"
	"io/fs"
	"syscall"
	"time"
)

// inodeOf identifies a file of the system. No program can set the time of its last
// change.
func inodeOf(info fs.FileInfo) (inode string, changed time.Time, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", time.Time{}, false
	}
	return fmt.Sprintf("%d %d", stat.Dev, stat.Ino), time.Unix(stat.Ctim.Unix()), true
}
