package rootfs

import (
	"io"
	"io/fs"
	"math"
	"os"

	"github.com/tetratelabs/wazero/experimental/sys"
)

// file is an open regular file. It implements [sys.File].
type file struct {
	handle
	name string
	flag sys.Oflag // access mode, O_APPEND and the O_SYNC flags
}

var _ sys.File = (*file)(nil)

// position is an alias for the sake of vet, which would otherwise insist that a
// method Seek return the error of [io.Seeker] instead of wazero's number.
type position = int64

// IsDir implements [sys.File].
func (w *file) IsDir() (bool, sys.Errno) { return false, 0 }

// IsAppend implements [sys.File].
func (w *file) IsAppend() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.appends()
}

func (w *file) appends() bool { return w.flag&sys.O_APPEND != 0 }

// SetAppend implements [sys.File] by opening the file again under its name, as
// append mode is fixed when a file is opened. It is [sys.ENOENT] when that name
// has come to mean another file.
func (w *file) SetAppend(enable bool) sys.Errno {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return sys.EBADF
	case w.appends() == enable:
		return 0
	}

	flag := w.flag ^ sys.O_APPEND
	again, fi, errno := w.fs.openOS(w.name, osFlags(flag), 0)
	if errno != 0 {
		return errno
	}
	if errno := w.adopt(again, fi); errno != 0 {
		_ = again.Close()
		return errno
	}

	w.flag = flag
	return 0
}

// adopt replaces w's handle by another one of the same file.
func (w *file) adopt(again *os.File, fi fs.FileInfo) sys.Errno {
	before, err := w.os.Stat()
	if err == nil && !os.SameFile(before, fi) {
		return sys.ENOENT
	}

	var offset int64
	if err == nil {
		offset, err = w.os.Seek(0, io.SeekCurrent)
	}
	if err == nil {
		_, err = again.Seek(offset, io.SeekStart)
	}
	if err != nil {
		return w.fs.errno(err)
	}

	_ = w.os.Close()
	w.os = again
	return 0
}

// Read implements [sys.File].
func (w *file) Read(buf []byte) (int, sys.Errno) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, sys.EBADF
	}
	n, err := w.os.Read(buf)
	return n, w.fs.errno(err)
}

// Pread implements [sys.File].
func (w *file) Pread(buf []byte, off int64) (int, sys.Errno) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return 0, sys.EBADF
	case off < 0:
		return 0, sys.EINVAL
	}
	n, err := w.os.ReadAt(buf, off)
	return n, w.fs.errno(err)
}

// Seek implements [sys.File].
func (w *file) Seek(offset position, whence int) (position, sys.Errno) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if errno := w.seekable(whence); errno != 0 {
		return 0, errno
	}
	n, err := w.os.Seek(offset, whence)
	return n, w.fs.errno(err)
}

// Readdir implements [sys.File] by refusing: [sys.EBADF].
func (w *file) Readdir(int) ([]sys.Dirent, sys.Errno) { return nil, sys.EBADF }

// Write implements [sys.File].
func (w *file) Write(buf []byte) (int, sys.Errno) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if errno := w.writable(); errno != 0 || len(buf) == 0 {
		return 0, errno
	}
	cost := int64(len(buf))
	if !w.appends() {
		off, err := w.os.Seek(0, io.SeekCurrent)
		errno := w.fs.errno(err)
		if errno == 0 {
			cost, errno = w.cost(off, len(buf))
		}
		if errno != 0 {
			return 0, errno
		}
	}

	return w.spendOn(len(buf), cost, func() (int, error) { return w.os.Write(buf) })
}

// Pwrite implements [sys.File]. It is [sys.ENOTSUP] in append mode, where
// systems disagree about what the offset means.
func (w *file) Pwrite(buf []byte, off int64) (int, sys.Errno) {
	w.mu.Lock()
	defer w.mu.Unlock()

	errno := w.writable()
	switch {
	case errno != 0:
		return 0, errno
	case off < 0:
		return 0, sys.EINVAL
	case w.appends():
		return 0, sys.ENOTSUP
	case len(buf) == 0:
		return 0, 0
	}

	cost, errno := w.cost(off, len(buf))
	if errno != 0 {
		return 0, errno
	}
	return w.spendOn(len(buf), cost, func() (int, error) { return w.os.WriteAt(buf, off) })
}

// Truncate implements [sys.File].
func (w *file) Truncate(size int64) sys.Errno {
	w.mu.Lock()
	defer w.mu.Unlock()

	if errno := w.writable(); errno != 0 {
		return errno
	}
	if size < 0 {
		return sys.EINVAL
	}

	fi, err := w.os.Stat()
	if err != nil {
		return w.fs.errno(err)
	}
	growth := max(0, size-fi.Size())
	return w.fs.limits.spendOn(growth, func() sys.Errno { return w.fs.errno(w.os.Truncate(size)) })
}

// writable reports why w takes no writes, or 0.
func (w *file) writable() sys.Errno {
	switch {
	case w.closed:
		return sys.EBADF
	case w.fs.readOnly:
		return sys.EROFS
	case w.flag&accessMask == sys.O_RDONLY:
		return sys.EBADF
	}
	return 0
}

// cost is what n bytes written at off cost: the bytes, or by how much the file
// grows if there is a gap between its end and off.
func (w *file) cost(off int64, n int) (int64, sys.Errno) {
	if off > math.MaxInt64-int64(n) {
		return 0, sys.EINVAL
	}
	fi, err := w.os.Stat()
	if err != nil {
		return 0, w.fs.errno(err)
	}
	return max(int64(n), off+int64(n)-fi.Size()), 0
}

// spendOn pays cost for a write of n bytes, and takes back what was not
// written. A write that cannot be paid in full writes nothing: wazero would
// carry on with the next buffer of the guest after a short one.
func (w *file) spendOn(n int, cost int64, write func() (int, error)) (int, sys.Errno) {
	if errno := w.fs.limits.spend(cost); errno != 0 {
		return 0, errno
	}
	written, err := write()
	switch {
	case written == 0:
		w.fs.limits.refund(cost)
	case written < n:
		w.fs.limits.refund(int64(n - written))
	}
	return written, w.fs.errno(err)
}

// Close implements [sys.File].
func (w *file) Close() sys.Errno {
	return w.close(w, true, w.os.Close)
}
