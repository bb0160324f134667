//go:build unix

package httpapi

import "syscall"

// openFiles is how many files the process may have open. Go raises it to what
// it may be raised to.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur)
}
