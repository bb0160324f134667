//go:build linux || darwin

package compiler

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxFiles is how many files a build may have open at a time.
const maxFiles = 64

// limitProcess limits what this process may take. Go's heap, stacks and mapped
// code are data. A limit on address space would be of no use: Go reserves far
// more than it takes.
func limitProcess(j job) error {
	closeInherited()

	seconds := uint64((j.Processor + time.Second - 1) / time.Second)
	timedOut := make(chan os.Signal, 1)
	signal.Notify(timedOut, unix.SIGXCPU)
	go func() {
		<-timedOut
		os.Exit(exitProcessor)
	}()
	signal.Ignore(unix.SIGXFSZ) // the write fails then

	limits := map[int]unix.Rlimit{
		unix.RLIMIT_CPU:    {Cur: seconds, Max: seconds + 1},
		unix.RLIMIT_FSIZE:  {Cur: maxFolder, Max: maxFolder},
		unix.RLIMIT_CORE:   {},
		unix.RLIMIT_NOFILE: {Cur: maxFiles, Max: maxFiles},
	}
	if dataCanBeLimited {
		limits[unix.RLIMIT_DATA] = unix.Rlimit{Cur: uint64(j.Memory), Max: uint64(j.Memory)}
	}

	for resource, limit := range limits {
		if err := lower(resource, limit); err != nil {
			return os.NewSyscallError("setrlimit", err)
		}
	}
	return nil
}

// lower sets a limit, unless there is a lower one already.
func lower(resource int, limit unix.Rlimit) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return err
	}
	return unix.Setrlimit(resource, &unix.Rlimit{Cur: min(limit.Cur, now.Max), Max: min(limit.Max, now.Max)})
}

// maxInherited is up to which number a child looks for files it inherited.
const maxInherited = 4096

// closeInherited closes the files that the host's parent left open for
// any program: all that this process opened itself are closed on exec.
func closeInherited() {
	for fd := 3; fd < maxInherited; fd++ {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// crashed reports whether a process was ended by a fault of its own.
func crashed(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return false
	}
	switch status.Signal() {
	case syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGILL, syscall.SIGABRT, syscall.SIGFPE, syscall.SIGSYS, syscall.SIGTRAP:
		return true
	}
	return false
}

// onDisk is how many bytes a file takes, which are few if most of it are holes.
func onDisk(info os.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return info.Size()
}
