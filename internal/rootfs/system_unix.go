//go:build unix

package rootfs

import (
	"os"
	"syscall"

	"github.com/tetratelabs/wazero/experimental/sys"
	"golang.org/x/sys/unix"
)

const (
	// openWithoutWaiting keeps a FIFO from blocking and a terminal from taking
	// over the process, should one be swapped in for a regular file.
	openWithoutWaiting = syscall.O_NONBLOCK | syscall.O_NOCTTY

	// attributeAccess opens a file to change its mode or times.
	attributeAccess = os.O_RDONLY

	// forbiddenInNames are bytes the system would give a meaning of its own.
	forbiddenInNames = ""
)

func systemErrno(number syscall.Errno) sys.Errno { return sys.UnwrapOSError(number) }

// setAppend changes the append mode of an open file.
func setAppend(file *os.File, enable bool) error {
	return onDescriptor(file, func(fd uintptr) error {
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		if err != nil {
			return err
		}
		flags &^= unix.O_APPEND
		if enable {
			flags |= unix.O_APPEND
		}
		_, err = unix.FcntlInt(fd, unix.F_SETFL, flags)
		return err
	})
}
