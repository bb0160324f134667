package rootfs

import "github.com/tetratelabs/wazero/experimental/sys"

// errnoLimit is what the guest sees when it meets a limit: wazero's errno has
// neither ENOSPC nor EMFILE, and maps every number it does not know to EIO.
// EAGAIN would invite a guest to try forever.
const errnoLimit = sys.EIO

// admit decides about opening one more file. self tells that it is the folder itself,
// which [Open] has opened already: the first to open it gets that one. wazero panics if
// opening the folder fails for any reason but ENOENT.
func (f *FS) admit(self bool) (sys.File, sys.Errno) {
	f.mu.Lock()
	defer f.mu.Unlock()

	switch {
	case f.closed:
		return nil, sys.ENOENT
	case self && !f.given:
		f.given = true
		return f.self, 0
	case len(f.open) >= f.limits.MaxOpenFiles:
		return nil, errnoLimit
	}
	return nil, 0
}

// remember notes an open file for Close, or reports that the mount is closed.
func (f *FS) remember(file sys.File) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open[file] = struct{}{}
	return !f.closed
}

// spend takes n bytes, all or none.
func (f *FS) spend(n int64) sys.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n > f.limits.MaxBytes-f.bytes {
		return errnoLimit
	}
	f.bytes += n
	return 0
}

// spendOn takes n bytes for an operation, and gives them back if it fails.
func (f *FS) spendOn(n int64, do func() sys.Errno) sys.Errno {
	errno := f.spend(n)
	if errno != 0 {
		return errno
	}
	if errno = do(); errno != 0 {
		f.refund(n)
	}
	return errno
}

// refund gives back bytes that were spent and then not written.
func (f *FS) refund(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bytes -= n
}
