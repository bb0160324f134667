//go:build linux && (amd64 || arm64)

package instance

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memoryFile returns a file in memory of length bytes that has data at an
// offset, and the same bytes for reading.
func memoryFile(data []byte, at, length uint64) (*os.File, []byte, error) {
	fd, err := unix.MemfdCreate("toolhost", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, fmt.Errorf("memfd_create: %w", err)
	}

	file := os.NewFile(uintptr(fd), "memfd:toolhost")
	_, err = file.WriteAt(data, int64(at))
	if err == nil {
		err = file.Truncate(int64(length))
	}
	var mapped []byte
	if err == nil {
		mapped, err = unix.Mmap(int(file.Fd()), 0, int(length), unix.PROT_READ, unix.MAP_SHARED)
	}
	if err != nil {
		_ = file.Close()
		return nil, nil, err
	}

	return file, mapped, nil
}

// reserve reserves size bytes that take up memory only once they are touched, and start
// as zeros.
func reserve(size uint64) ([]byte, error) {
	room, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err == nil {
		_ = unix.Madvise(room, unix.MADV_NOHUGEPAGE) // otherwise one byte would take 2 MiB
	}
	return room, err
}

// unreserve gives reserved memory back. Reading it afterwards crashes the process.
func unreserve(room []byte) { _ = unix.Munmap(room) }

// overlay maps a file over room, which has the same size and lies within
// reserved memory. Writes to it stay private.
func overlay(room []byte, file *os.File) error {
	_, err := unix.MmapPtr(int(file.Fd()), 0, unsafe.Pointer(unsafe.SliceData(room)), uintptr(len(room)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
	runtime.KeepAlive(file)
	return os.NewSyscallError("mmap", err)
}

// discard undoes all writes to a part of room, whose bounds are multiples of
// the system's pages. The part may span several mappings.
func discard(room []byte) error {
	if len(room) == 0 {
		return nil
	}
	return unix.Madvise(room, unix.MADV_DONTNEED)
}
