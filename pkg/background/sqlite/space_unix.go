//go:build linux || darwin

package sqlite

import "syscall"

// scarce reports whether the disk of a directory has less room than a probe takes. It
// reports false if the system does not say.
func scarce(dir string) bool {
	var disk syscall.Statfs_t
	return syscall.Statfs(dir, &disk) == nil && disk.Bavail*uint64(disk.Bsize) < probe
}
