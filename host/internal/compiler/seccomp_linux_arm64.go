package compiler

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// archCalls are the calls that only this processor has, or has under this name.
var archCalls = []uint32{unix.SYS_FSTATAT}
