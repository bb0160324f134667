package rootfs

import (
	"os"
	"unsafe"

	"github.com/tetratelabs/wazero/experimental/sys"
	"golang.org/x/sys/unix"
)

// setTimes sets the times of an open file, given in nanoseconds since 1970.
func setTimes(file *os.File, atim, mtim int64) error {
	times := [2]unix.Timespec{timespec(atim), timespec(mtim)}
	return onDescriptor(file, func(fd uintptr) error {
		// futimens(3), for which package unix has no function.
		_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, fd, 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0)
		if errno != 0 {
			return errno
		}
		return nil
	})
}

func timespec(nanos int64) unix.Timespec {
	if nanos == sys.UTIME_OMIT {
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	}
	return unix.NsecToTimespec(nanos)
}
