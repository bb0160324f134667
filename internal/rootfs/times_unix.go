//go:build unix && !linux

package rootfs

import (
	"os"
	"syscall"

	"github.com/tetratelabs/wazero/experimental/sys"
	wasys "github.com/tetratelabs/wazero/sys"
)

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
