//go:build unix

package mcpapi

import (
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// unread reports whether a stream is a pipe or socket whose other end is closed.
func unread(out io.Writer) bool {
	file, ok := out.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return false
	}

	gone := false
	_ = raw.Control(func(fd uintptr) {
		state := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(state, 0)
		gone = err == nil && n > 0 && state[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
	})
	return gone
}
