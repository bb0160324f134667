package rootfs

import (
	"os"
	"syscall"

	"github.com/tetratelabs/wazero/experimental/sys"
)

const (
	// openWithoutWaiting is zero: there are no FIFOs among files here.
	openWithoutWaiting = 0

	// attributeAccess opens a file to change its mode or times, for which a
	// handle for reading is not enough. Directories do not open this way, so
	// theirs cannot be changed.
	attributeAccess = os.O_RDWR

	// forbiddenInNames are the other separator and the mark of drives and
	// alternate data streams.
	forbiddenInNames = `\:`

	errorSharingViolation = syscall.Errno(32)
)

func systemErrno(number syscall.Errno) sys.Errno {
	switch number {
	case syscall.ERROR_ACCESS_DENIED, errorSharingViolation:
		return sys.EACCES // wazero's own mapping says EBADF
	}
	return sys.UnwrapOSError(number)
}

// setAppend refuses: the mode is part of what a file is opened for.
func setAppend(*os.File, bool) error { return sys.ENOTSUP }

// setTimes sets the times of an open file, in nanoseconds since 1970.
func setTimes(file *os.File, atim, mtim int64) error {
	return onDescriptor(file, func(fd uintptr) error {
		return syscall.SetFileTime(syscall.Handle(fd), nil, filetime(atim), filetime(mtim))
	})
}

// filetime converts a time. For UTIME_OMIT it returns nil, which keeps the time.
func filetime(nanos int64) *syscall.Filetime {
	if nanos == sys.UTIME_OMIT {
		return nil
	}
	t := syscall.NsecToFiletime(nanos)
	return &t
}
