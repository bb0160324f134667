package rootfs

import (
	"cmp"
	"io"
	"math"
	"sync/atomic"

	"github.com/tetratelabs/wazero/experimental/sys"
)

// file is an open regular file. It implements [sys.File].
type file struct {
	handle
	flag    sys.Oflag   // access mode, O_APPEND and the O_SYNC flags
	appends atomic.Bool // append mode, at first as in flag
}

var _ sys.File = (*file)(nil)

// IsDir implements [sys.File].
func (w *file) IsDir() (bool, sys.Errno) { return false, 0 }

// IsAppend implements [sys.File].
func (w *file) IsAppend() bool { return w.appends.Load() }

// SetAppend implements [sys.File]. On Windows, append mode is fixed when a file is opened, and
// changing it fails with [sys.ENOTSUP].
func (w *file) SetAppend(enable bool) sys.Errno {
	if enable == w.IsAppend() {
		return 0
	}
	err := setAppend(w.os, enable)
	if err == nil {
		w.appends.Store(enable)
	}
	return w.fs.errno(err)
}

// Read implements [sys.File].
func (w *file) Read(buf []byte) (int, sys.Errno) {
	n, err := w.os.Read(buf)
	return n, w.fs.errno(err)
}

// Pread implements [sys.File].
func (w *file) Pread(buf []byte, off int64) (int, sys.Errno) {
	if off < 0 {
		return 0, sys.EINVAL
	}
	n, err := w.os.ReadAt(buf, off)
	return n, w.fs.errno(err)
}

// Seek implements [sys.File].
func (w *file) Seek(offset position, whence int) (position, sys.Errno) {
	if whence < io.SeekStart || whence > io.SeekEnd {
		return 0, sys.EINVAL
	}
	n, err := w.os.Seek(offset, whence)
	return n, w.fs.errno(err)
}

// Readdir implements [sys.File]. It always fails with [sys.EBADF].
func (w *file) Readdir(int) ([]sys.Dirent, sys.Errno) { return nil, sys.EBADF }

// Write implements [sys.File].
func (w *file) Write(buf []byte) (int, sys.Errno) {
	if errno := w.writable(); errno != 0 || len(buf) == 0 {
		return 0, errno
	}
	cost := int64(len(buf))
	if !w.IsAppend() {
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

// Pwrite implements [sys.File]. In append mode it writes at the end, as on Linux.
func (w *file) Pwrite(buf []byte, off int64) (int, sys.Errno) {
	errno := w.writable()
	switch {
	case errno != 0:
		return 0, errno
	case off < 0:
		return 0, sys.EINVAL
	case len(buf) == 0:
		return 0, 0
	}

	cost := int64(len(buf))
	if !w.IsAppend() {
		var errno sys.Errno
		if cost, errno = w.cost(off, len(buf)); errno != 0 {
			return 0, errno
		}
	}
	return w.spendOn(len(buf), cost, func() (int, error) { return w.writeAt(buf, off) })
}

// writeAt writes without moving the position. [os.File.WriteAt] refuses files that were opened
// to append.
func (w *file) writeAt(buf []byte, off int64) (int, error) {
	appends := w.IsAppend()
	if w.flag&sys.O_APPEND == 0 && !appends {
		return w.os.WriteAt(buf, off)
	}
	position, err := w.os.Seek(0, io.SeekCurrent)
	if err == nil && !appends {
		_, err = w.os.Seek(off, io.SeekStart)
	}
	if err != nil {
		return 0, err
	}

	n, err := w.os.Write(buf)
	_, back := w.os.Seek(position, io.SeekStart)
	return n, cmp.Or(err, back)
}

// Truncate implements [sys.File].
func (w *file) Truncate(size int64) sys.Errno {
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
	return w.fs.spendOn(growth, func() sys.Errno { return w.fs.errno(w.os.Truncate(size)) })
}

// writable reports why w takes no writes, or 0.
func (w *file) writable() sys.Errno {
	switch {
	case w.fs.readOnly():
		return sys.EROFS
	case w.flag&accessMask == sys.O_RDONLY:
		return sys.EBADF
	}
	return 0
}

// cost returns what n bytes written at off cost: the bytes, or by how much the file
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
	if errno := w.fs.spend(cost); errno != 0 {
		return 0, errno
	}

	written, err := write()
	switch {
	case written == 0:
		w.fs.refund(cost)
	case written < n:
		w.fs.refund(int64(n - written))
	}
	return written, w.fs.errno(err)
}

// Close implements [sys.File].
func (w *file) Close() sys.Errno { return w.fs.close(w, w.os.Close) }
