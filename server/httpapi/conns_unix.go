//go:build unix

package httpapi

import "syscall"

// openFiles returns the open-file limit of the process, which Go raises to the hard limit
// at startup. It returns 0 if the limit is unknown.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur)
}
