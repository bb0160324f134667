package compiler

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets of fields in struct seccomp_data, see seccomp(2).
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16 // eight bytes each, the low half first on these machines
)

// allowedCalls are the system calls that Go's runtime and a build need on every
// processor.
var allowedCalls = []uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_CLOSE, unix.SYS_LSEEK,
	unix.SYS_OPENAT, unix.SYS_FSTAT, unix.SYS_FTRUNCATE, unix.SYS_FSYNC, unix.SYS_GETCWD,
	unix.SYS_GETDENTS64, unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2,
	unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_BRK,
	unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_MEMBARRIER,
	unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_GETRANDOM,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_PIPE2,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}

// seccomp makes the kernel refuse all system calls of this process except those
// that a build needs: no network, no other programs, no other processes. On
// processors without a list of calls, its error matches errors.ErrUnsupported.
func seccomp() error {
	if auditArch == 0 {
		return errors.ErrUnsupported
	}
	filter := seccompFilter(append(allowedCalls, archCalls...), uint32(unix.Getpid()))
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The flag applies the filter to all threads, with no_new_privs.
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	switch {
	case errno != 0:
		return errno
	case thread != 0:
		return fmt.Errorf("thread %d cannot be filtered", thread)
	}
	return nil
}

// fcntlCommands are the commands that Go's os package uses. F_SETFL is checked further:
// with O_ASYNC the kernel would send signals to any process that F_SETOWN names.
var fcntlCommands = []uint32{unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_DUPFD_CLOEXEC}

// seccompFilter is a classic BPF program. It allows the listed calls, new threads, signals
// to this process, harmless uses of fcntl, and memory that counts as data of this process.
// Other calls fail with EPERM, except clone3 with ENOSYS, so that libraries fall back to
// clone.
func seccompFilter(calls []uint32, pid uint32) []unix.SockFilter {
	filter := []unix.SockFilter{
		bpfLoad(dataArch), bpfUnless(auditArch, 1), {Code: unix.BPF_JMP | unix.BPF_JA, K: 1}, bpfReturn(unix.SECCOMP_RET_KILL_PROCESS),
		bpfLoad(dataNumber),
	}
	for _, call := range calls {
		filter = append(filter, bpfUnless(call, 1), bpfAllow)
	}

	for _, call := range []struct {
		number uint32
		rule   []unix.SockFilter
	}{
		{unix.SYS_CLONE3, []unix.SockFilter{bpfReturn(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS))}},
		{unix.SYS_CLONE, []unix.SockFilter{bpfLoadArg(0), bpfUnlessAny(unix.CLONE_THREAD, 1), bpfAllow, bpfDeny}},
		{unix.SYS_TGKILL, []unix.SockFilter{bpfLoadArg(0), bpfUnless(pid, 1), bpfAllow, bpfDeny}},
		{unix.SYS_FCNTL, fcntlRule()},
		{unix.SYS_MMAP, []unix.SockFilter{
			bpfLoadArg(3), // shared, stack or file mappings are not limited as data
			bpfIfAny(unix.MAP_SHARED|unix.MAP_GROWSDOWN, 2), bpfUnlessAny(unix.MAP_ANONYMOUS, 1), bpfAllow, bpfDeny,
		}},
	} {
		filter = append(filter, bpfUnless(call.number, uint8(len(call.rule))))
		filter = append(filter, call.rule...)
	}
	return append(filter, bpfDeny)
}

func fcntlRule() []unix.SockFilter {
	rule := []unix.SockFilter{bpfLoadArg(1)}
	for _, command := range fcntlCommands {
		rule = append(rule, bpfUnless(command, 1), bpfAllow)
	}
	return append(rule, bpfUnless(unix.F_SETFL, 3), bpfLoadArg(2), bpfIfAny(unix.O_ASYNC, 1), bpfAllow, bpfDeny)
}

// Instructions of the filter. Tests of the loaded value skip some of the next
// instructions.

var bpfAllow, bpfDeny = bpfReturn(unix.SECCOMP_RET_ALLOW), bpfReturn(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))

func bpfLoad(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// bpfLoadArg loads the low half of an argument.
func bpfLoadArg(n uint32) unix.SockFilter { return bpfLoad(dataArgs + 8*n) }

func bpfReturn(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

// bpfUnless skips if the loaded value is not k.
func bpfUnless(k uint32, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: skip}
}

// bpfUnlessAny skips if the loaded value has none of these bits.
func bpfUnlessAny(bits uint32, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: bits, Jf: skip}
}

// bpfIfAny skips if the loaded value has any of these bits.
func bpfIfAny(bits uint32, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: bits, Jt: skip}
}
