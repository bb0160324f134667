//go:build linux && !amd64 && !arm64

package compiler

// There is no compiler for this processor, and so no list of system calls.
const auditArch = 0

var archCalls []uint32
