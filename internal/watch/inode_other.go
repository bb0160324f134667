//go:build !linux

package watch

import (
	"io/fs"
	"time"
)

// Inode returns false, because this system does not report inodes.
func Inode(fs.FileInfo) (string, time.Time, bool) { return "", time.Time{}, false }
