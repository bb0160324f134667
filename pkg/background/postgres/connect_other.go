//go:build !linux

package postgres

import "syscall"

// giveUp does nothing: the system has no such option.
func giveUp(_, _ string, _ syscall.RawConn) error { return nil }
