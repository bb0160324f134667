package rootfs

import (
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/tetratelabs/wazero/experimental/sys"
	wasys "github.com/tetratelabs/wazero/sys"
)

// handle is what open files and open directories have in common: the parts of
// [sys.File] that act on a descriptor. Operations lock it, as they share an offset.
type handle struct {
	fs   *FS
	info fs.FileInfo // as it was when opened

	mu     sync.Mutex
	os     *os.File
	closed bool
}

// Dev implements [sys.File].
func (h *handle) Dev() (uint64, sys.Errno) { return wasys.NewStat_t(h.info).Dev, 0 }

// Ino implements [sys.File].
func (h *handle) Ino() (wasys.Inode, sys.Errno) { return wasys.NewStat_t(h.info).Ino, 0 }

// Stat implements [sys.File].
func (h *handle) Stat() (wasys.Stat_t, sys.Errno) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fs.stat(h.os.Stat())
}

// Sync implements [sys.File].
func (h *handle) Sync() sys.Errno {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fs.errno(h.os.Sync())
}

// Datasync implements [sys.File] as Sync.
func (h *handle) Datasync() sys.Errno { return h.Sync() }

// Utimens implements [sys.File], with the precision of [FS.Utimens].
func (h *handle) Utimens(atim, mtim int64) sys.Errno {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return sys.EBADF
	case h.fs.readOnly:
		return sys.EROFS
	}

	if errno := h.fs.changeable(h.os.Stat()); errno != 0 {
		return errno
	}
	return h.fs.errno(setTimes(h.os, atim, mtim))
}

// seekable reports why a handle cannot seek, or 0.
func (h *handle) seekable(whence int) sys.Errno {
	switch {
	case h.closed:
		return sys.EBADF
	case whence < io.SeekStart || whence > io.SeekEnd:
		return sys.EINVAL
	}
	return 0
}

// close closes the open file c, once. Counted says that it is one of the open files.
func (h *handle) close(c closer, counted bool, closeOS func() error) sys.Errno {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return 0
	}

	h.closed = true
	h.fs.forget(c)
	if counted {
		h.fs.limits.dropFile()
	}
	return h.fs.errno(closeOS())
}
