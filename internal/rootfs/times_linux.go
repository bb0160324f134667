package rootfs

import (
	"os"
	"syscall"
	"unsafe"

	"github.com/tetratelabs/wazero/experimental/sys"
)

// utimeOmit is UTIME_OMIT of linux/stat.h: leave this time as it is.
const utimeOmit = 1<<30 - 2

// setTimes sets the times of an open file, in nanoseconds since 1970. It is
// futimens(3): utimensat without a path acts on the descriptor.
func setTimes(file *os.File, atim, mtim int64) error {
	times := [2]syscall.Timespec{timespec(atim), timespec(mtim)}
	return onDescriptor(file, func(fd uintptr) error {
		_, _, errno := syscall.Syscall6(syscall.SYS_UTIMENSAT, fd, 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0)
		if errno != 0 {
			return errno
		}
		return nil
	})
}

func timespec(nanos int64) syscall.Timespec {
	if nanos == sys.UTIME_OMIT {
		return syscall.Timespec{Nsec: utimeOmit}
	}
	return syscall.NsecToTimespec(nanos)
}
