//go:build unix

package rootfs

import (
	"os"
	"syscall"

	"github.com/tetratelabs/wazero/experimental/sys"
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
