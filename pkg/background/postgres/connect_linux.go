package postgres

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// giveUp makes a connection end when data that was sent has not been acknowledged
// for the duration silence: the other machine may be gone. The default is 15
// minutes.
func giveUp(network, _ string, conn syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return nil
	}
	return conn.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
	})
}
