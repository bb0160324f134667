// Package rootfs mounts one folder of the host into a hostile WASI guest, so
// that nothing the guest does reaches outside that folder. It implements
// wazero's [sys.FS] on top of [os.Root]; wazero's own DirFS follows any
// symbolic link.
//
//   - Paths are relative to the folder; leading slashes are ignored, "" is the
//     folder itself, and ".." that would leave the folder is refused.
//   - Symbolic links work if they stay inside the folder. Links that lead out of
//     it, or are absolute, are refused, and so is reading their text, which would
//     tell the guest about the host. They can be listed, renamed and removed.
//   - The guest makes no links, symbolic or hard: a link planted by a guest
//     could mislead other programs.
//   - Only regular files and directories can be opened. FIFOs, sockets and devices are
//     refused without being opened.
//   - A regular file with more than one name (hard links) can be read but not
//     changed: the other names may lie outside the folder. The same holds for
//     setuid and setgid files. Windows does not report link counts.
//   - Permission bits are cut to 0777 in both directions.
//
// Mount points below the folder belong to it, as [os.Root] says. Do not grant a
// folder such as /proc or /dev, where writing to a file has other effects.
//
// Operations that this package forbids fail with [sys.EPERM], those that the
// system forbids with [sys.EACCES], changes to a read-only mount with
// [sys.EROFS], and those beyond a limit of [Options] with [sys.EIO]. The guest
// sees only the numbers, and no path of the host.
package rootfs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/tetratelabs/wazero/experimental/sys"
)

const (
	// DefaultMaxOpenFiles is the limit when [Options.MaxOpenFiles] is 0.
	DefaultMaxOpenFiles = 64
	// DefaultMaxBytes is the limit when [Options.MaxBytes] is 0: 64 MiB.
	DefaultMaxBytes = 64 << 20
	// EntryCost is the number of bytes that each new file or directory counts
	// against [Options.MaxBytes]. Empty files cost no bytes but do cost inodes,
	// which a hostile guest could exhaust just as well.
	EntryCost = 4096
)

// Options limits a mount. The zero value is a writable mount with default
// limits.
type Options struct {
	// ReadOnly refuses every change with [sys.EROFS], including opening a file
	// for writing.
	ReadOnly bool

	// MaxOpenFiles is how many files and directories the guest may hold open
	// at once, not counting the mounted folder itself. An open directory takes
	// two descriptors of the host. 0 means [DefaultMaxOpenFiles].
	MaxOpenFiles int

	// MaxBytes is how many bytes the guest may write through the mount over its
	// lifetime. Overwriting counts again, and deleting frees nothing. Growing a
	// file by truncating it or by writing past its end counts the gap. Each new
	// file or directory counts [EntryCost]. A write that does not fit writes
	// nothing. 0 means [DefaultMaxBytes].
	MaxBytes int64
}

// FS is one mounted folder. It implements [sys.FS].
//
// Make one FS for each call of a guest and mount it once: its limits and open
// files belong to that guest. It is nevertheless safe for concurrent use, and
// [FS.Close] may be called while the guest is inside an operation.
type FS struct {
	root   *os.Root
	self   *dir  // the folder
	escape error // error that root returns when a path leaves it
	limits Options

	mu     sync.Mutex
	closed bool
	given  bool                  // whether the guest has opened self
	open   map[sys.File]struct{} // files that are open, except self
	bytes  int64                 // bytes written so far

	refused atomic.Bool // whether a change was refused because the mount is read-only
}

// Refused reports whether the guest tried to change something in a read-only mount.
func (f *FS) Refused() bool { return f.refused.Load() }

// readOnly reports whether a change is refused.
func (f *FS) readOnly() bool {
	if f.limits.ReadOnly {
		f.refused.Store(true)
	}
	return f.limits.ReadOnly
}

var _ sys.FS = (*FS)(nil)

// Open mounts dir. The operator chooses dir, so it may be a symbolic link or
// pass through one. Its errors are for the operator and name dir.
func Open(dir string, opts Options) (*FS, error) {
	// os.OpenRoot would block on a FIFO.
	if fi, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("mount: %w", err)
	} else if !fi.IsDir() {
		return nil, fmt.Errorf("mount: %w", &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR})
	}

	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("mount: %w", err)
	}
	opts.MaxOpenFiles = cmp.Or(opts.MaxOpenFiles, DefaultMaxOpenFiles)
	opts.MaxBytes = cmp.Or(opts.MaxBytes, DefaultMaxBytes)
	f := &FS{root: root, limits: opts, open: make(map[sys.File]struct{})}
	if err := f.prepare(); err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("mount %s: %w", dir, err)
	}

	return f, nil
}

// prepare learns how the root reports an escape and opens the folder itself.
func (f *FS) prepare() error {
	// The error of os.Root for a path that leaves it has no exported name.
	_, err := f.root.Lstat("..")
	var pathErr *fs.PathError
	if !errors.As(err, &pathErr) {
		return errors.New("the root does not confine paths")
	}

	f.escape = pathErr.Err

	// wazero opens the folder when the guest first uses it, and panics if that
	// fails for any reason but ENOENT. Opened now, it cannot fail then.
	f.self, err = f.dirAt(".")
	return err
}

// Folder returns the mounted folder itself, to list it. Close closes it.
func (f *FS) Folder() sys.File { return f.self }

// Close closes the root and every file the guest left open. Operations under
// way finish or fail; later ones fail with [sys.EBADF], OpenFile with
// [sys.ENOENT]. Closing twice is harmless.
func (f *FS) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	open := slices.Collect(maps.Keys(f.open))
	f.mu.Unlock()

	var errs []error
	for _, file := range open {
		if errno := file.Close(); errno != 0 {
			errs = append(errs, fmt.Errorf("close a file of the mount: %w", errno))
		}
	}
	return errors.Join(append(errs, f.self.closeHandles(), f.root.Close())...)
}

// close closes an open file, once.
func (f *FS) close(file sys.File, closeOS func() error) sys.Errno {
	f.mu.Lock()
	_, open := f.open[file]
	delete(f.open, file)
	f.mu.Unlock()

	if !open {
		return 0
	}
	return f.errno(closeOS())
}
