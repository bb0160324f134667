package postgres

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// giveUp has a connection end when what was sent is not received for as long as silence
// lasts: the machine may be gone. By default that takes 15 minutes.
func giveUp(network, _ string, conn syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return nil
	}
	return conn.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
	})
}
