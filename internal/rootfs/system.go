package rootfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/tetratelabs/wazero/experimental/sys"
)

// errno turns an error of the os package into the number that the guest sees.
// Nothing else does, so paths inside err go no further.
func (f *FS) errno(err error) sys.Errno {
	var number syscall.Errno
	var errno sys.Errno

	switch {
	case err == nil, errors.Is(err, io.EOF):
		return 0
	case errors.Is(err, f.escape):
		return sys.EPERM
	case errors.Is(err, fs.ErrClosed):
		return sys.EBADF
	case errors.As(err, &errno): // which is a syscall.Errno as well
		return errno
	case errors.As(err, &number):
		return systemErrno(number)
	case errors.Is(err, fs.ErrInvalid):
		return sys.EINVAL
	default:
		return sys.EIO
	}
}

// onDescriptor calls do with the descriptor of file, which stays open until do returns.
func onDescriptor(file *os.File, do func(fd uintptr) error) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	if err := conn.Control(func(fd uintptr) { result = do(fd) }); err != nil {
		return err
	}
	return result
}
