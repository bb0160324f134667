package compiler

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// archCalls are the calls that only this processor has. The calls of the x32
// ABI have other numbers, and are not allowed.
var archCalls = []uint32{unix.SYS_NEWFSTATAT, unix.SYS_EPOLL_WAIT, unix.SYS_ARCH_PRCTL, unix.SYS_UNLINK, unix.SYS_RENAME, unix.SYS_MKDIR}
