//go:build linux || darwin

package compiler

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxFiles is how many files a build may have open.
const maxFiles = 64

// limitProcess limits the resources of this process. Go's heap, stacks and
// mapped code count as data. A limit on address space would be useless: Go
// reserves far more than it uses.
func limitProcess(j job) error {
	closeInherited()

	seconds := uint64((j.Processor + time.Second - 1) / time.Second)
	timedOut := make(chan os.Signal, 1)
	signal.Notify(timedOut, unix.SIGXCPU)
	go func() {
		<-timedOut
		os.Exit(exitProcessor)
	}()
	signal.Ignore(unix.SIGXFSZ) // so that the write fails instead

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

// lower sets a limit, unless it is already lower.
func lower(resource int, limit unix.Rlimit) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return err
	}
	return unix.Setrlimit(resource, &unix.Rlimit{Cur: min(limit.Cur, now.Max), Max: min(limit.Max, now.Max)})
}

// maxInherited is the highest descriptor that a child checks for inherited
// files, plus one.
const maxInherited = 4096

// closeInherited closes the files that the host's parent left open for any
// program. The files of this process itself are closed on exec.
func closeInherited() {
	for fd := 3; fd < maxInherited; fd++ {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// crashed reports whether a process crashed.
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

// onDisk returns how many bytes a file takes on disk: few if it consists mostly
// of holes.
func onDisk(info os.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return info.Size()
}
