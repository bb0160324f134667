package compiler

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Where the fields of struct seccomp_data are, see seccomp(2).
const (
	dataNumber = 0
	dataArch   = 4
	dataArg0   = 16 // its low half, on machines that store that first
)

// allowedCalls are the system calls that Go's runtime and a build need on every
// processor.
var allowedCalls = []uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_CLOSE, unix.SYS_LSEEK,
	unix.SYS_OPENAT, unix.SYS_FSTAT, unix.SYS_FCNTL, unix.SYS_FTRUNCATE, unix.SYS_FSYNC, unix.SYS_GETCWD,
	unix.SYS_GETDENTS64, unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2,
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_BRK,
	unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_MEMBARRIER,
	unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_GETRANDOM,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_PIPE2,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}

// seccomp has the kernel refuse all system calls of this process but those that
// a build needs: there is no network, no other program, no other process. Its
// error matches errors.ErrUnsupported on processors whose calls are not listed.
func seccomp() error {
	if auditArch == 0 {
		return errors.ErrUnsupported
	}
	filter := seccompFilter(append(allowedCalls, archCalls...), uint32(unix.Getpid()))
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The flag has all threads filtered, and with no_new_privs.
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	switch {
	case errno != 0:
		return errno
	case thread != 0:
		return fmt.Errorf("thread %d cannot be filtered", thread)
	}
	return nil
}

// seccompFilter is a program of classic BPF: it allows the calls listed, new
// threads and signals to this process. Other calls fail with EPERM, and clone3
// with ENOSYS, for which libraries fall back to clone.
func seccompFilter(calls []uint32, pid uint32) []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	ret := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	// unless skips so many instructions if what was loaded is not k.
	unless := func(k uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: skip}
	}
	allow, deny := ret(unix.SECCOMP_RET_ALLOW), ret(unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM))

	filter := []unix.SockFilter{
		load(dataArch), unless(auditArch, 1), {Code: unix.BPF_JMP | unix.BPF_JA, K: 1}, ret(unix.SECCOMP_RET_KILL_PROCESS),
		load(dataNumber),
	}
	for _, call := range calls {
		filter = append(filter, unless(call, 1), allow)
	}
	return append(filter,
		unless(unix.SYS_CLONE3, 1), ret(unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)),
		unless(unix.SYS_CLONE, 4), load(dataArg0), unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.CLONE_THREAD, Jf: 1}, allow, deny,
		unless(unix.SYS_TGKILL, 3), load(dataArg0), unless(pid, 1), allow,
		deny,
	)
}
