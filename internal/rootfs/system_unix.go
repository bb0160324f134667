//go:build unix

package rootfs

import (
	"os"
	"syscall"

	"github.com/tetratelabs/wazero/experimental/sys"
	wasys "github.com/tetratelabs/wazero/sys"
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

// setTimes sets the times of an open file, given in nanoseconds since 1970, to
// the microsecond: package syscall has futimes but not futimens.
func setTimes(file *os.File, atim, mtim int64) error {
	fi, err := file.Stat()
	if err != nil {
		return err
	}
	st := wasys.NewStat_t(fi)
	if atim == sys.UTIME_OMIT {
		atim = st.Atim
	}
	if mtim == sys.UTIME_OMIT {
		mtim = st.Mtim
	}

	times := []syscall.Timeval{syscall.NsecToTimeval(atim), syscall.NsecToTimeval(mtim)}
	return onDescriptor(file, func(fd uintptr) error { return syscall.Futimes(int(fd), times) })
}
