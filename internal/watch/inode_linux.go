package watch

import (
	"fmt"
	"io/fs"
	"syscall"
	"time"
)

// Inode identifies a file of the system: ok is false if that is unknown. No program can
// set the time of its last change.
func Inode(info fs.FileInfo) (inode string, changed time.Time, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", time.Time{}, false
	}
	return fmt.Sprintf("%d %d", stat.Dev, stat.Ino), time.Unix(stat.Ctim.Unix()), true
}
