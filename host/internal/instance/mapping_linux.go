//go:build linux && (amd64 || arm64)

package instance

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// sysMemfdCreate is the number of memfd_create(2), which package syscall does
// not have.
var sysMemfdCreate = map[string]uintptr{"amd64": 319, "arm64": 279}[runtime.GOARCH]

const memfdCloexec = 1

// memoryFile returns a file in memory of length bytes that has data at an
// offset, and the same bytes for reading.
func memoryFile(data []byte, at, length uint64) (*os.File, []byte, error) {
	name := [...]byte{'t', 'o', 'o', 'l', 'h', 'o', 's', 't', 0}
	fd, _, errno := syscall.Syscall(sysMemfdCreate, uintptr(unsafe.Pointer(&name[0])), memfdCloexec, 0)
	if errno != 0 {
		return nil, nil, fmt.Errorf("memfd_create: %w", errno)
	}

	file := os.NewFile(fd, "memfd:toolhost")
	_, err := file.WriteAt(data, int64(at))
	if err == nil {
		err = file.Truncate(int64(length))
	}
	var mapped []byte
	if err == nil {
		mapped, err = syscall.Mmap(int(file.Fd()), 0, int(length), syscall.PROT_READ, syscall.MAP_SHARED)
	}
	if err != nil {
		_ = file.Close()
		return nil, nil, err
	}

	return file, mapped, nil
}

// reserve reserves size bytes that take memory when they are touched, and
// start as zero.
func reserve(size uint64) ([]byte, error) {
	room, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err == nil {
		_ = syscall.Madvise(room, syscall.MADV_NOHUGEPAGE) // otherwise one byte would take 2 MiB
	}
	return room, err
}

// unreserve returns reserved memory. Reading it afterwards crashes the process.
func unreserve(room []byte) { _ = syscall.Munmap(room) }

// overlay maps a file over room, which has the same size and lies within
// reserved memory. Writes to it stay private.
func overlay(room []byte, file *os.File) error {
	_, _, errno := syscall.Syscall6(syscall.SYS_MMAP, uintptr(unsafe.Pointer(unsafe.SliceData(room))), uintptr(len(room)),
		syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_FIXED|syscall.MAP_NORESERVE, file.Fd(), 0)
	runtime.KeepAlive(file)
	if errno != 0 {
		return fmt.Errorf("mmap: %w", errno)
	}
	return nil
}

// discard undoes all writes to a part of room, whose bounds are multiples of
// the system's pages. The part may span several mappings.
func discard(room []byte) error {
	if len(room) == 0 {
		return nil
	}
	return syscall.Madvise(room, syscall.MADV_DONTNEED)
}
