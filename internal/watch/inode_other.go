//go:build !linux

package watch

import (
	"io/fs"
	"time"
)

// Inode is unknown here: ok is false.
func Inode(fs.FileInfo) (string, time.Time, bool) { return "", time.Time{}, false }
