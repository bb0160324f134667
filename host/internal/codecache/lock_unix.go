//go:build unix

package codecache

import (
	"os"
	"syscall"
)

// lock takes the lock of a file, which lasts as long as it is open. It is false
// if another process has it.
func lock(file *os.File) bool {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
