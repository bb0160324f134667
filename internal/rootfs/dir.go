package rootfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/tetratelabs/wazero/experimental/sys"
	wasys "github.com/tetratelabs/wazero/sys"
)

// maxDirents is how many entries one Readdir returns at most. A guest names
// the number, up to 178 million, and wazero keeps the entries of the last call
// for each open directory. wazero takes fewer entries than it asked for as the
// end of the directory, so a listing cannot be cut, only refused.
const maxDirents = 4096

// dir is an open directory. It implements [sys.File].
type dir struct {
	sys.DirFile // refuses what only files do: EISDIR

	fs      *FS
	info    fs.FileInfo // as it was when opened
	counted bool        // takes a place among the open files

	mu     sync.Mutex
	root   *os.Root // the directory, to look at its entries
	list   *os.File // the directory, to list it
	closed bool
}

var _ sys.File = (*dir)(nil)

// openDir opens a directory; anything else is refused without being opened.
func (f *FS) openDir(n string) (*dir, sys.Errno) {
	d, err := f.dirAt(n)
	if err != nil {
		return nil, f.errno(err)
	}
	return d, 0
}

// dirAt is openDir, with the error of the system.
func (f *FS) dirAt(n string) (*dir, error) {
	// With the dot n is opened as a directory on the way to it; without, a
	// FIFO swapped in for n would block.
	root, err := f.root.OpenRoot(n + "/.")
	if err != nil {
		return nil, err
	}

	d := &dir{fs: f, root: root}
	if d.list, err = root.Open("."); err != nil {
		_ = root.Close()
		return nil, err
	}
	if d.info, err = d.list.Stat(); err != nil {
		_ = d.closeHandles()
		return nil, err
	}

	return d, nil
}

// rewind starts the listing over, so that it shows entries made since.
func (d *dir) rewind() sys.Errno {
	list, err := d.root.Open(".")
	if err != nil {
		return d.fs.errno(err)
	}
	_ = d.list.Close()
	d.list = list
	return 0
}

// Dev implements [sys.File].
func (d *dir) Dev() (uint64, sys.Errno) { return wasys.NewStat_t(d.info).Dev, 0 }

// Ino implements [sys.File].
func (d *dir) Ino() (wasys.Inode, sys.Errno) { return wasys.NewStat_t(d.info).Ino, 0 }

// Stat implements [sys.File].
func (d *dir) Stat() (wasys.Stat_t, sys.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fi, err := d.list.Stat()
	if err != nil {
		return wasys.Stat_t{}, d.fs.errno(err)
	}
	return statOf(fi), 0
}

// Seek implements [sys.File] for going back to the start; any other move in a
// directory is [sys.EISDIR].
func (d *dir) Seek(offset position, whence int) (position, sys.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return 0, sys.EBADF
	case whence < io.SeekStart || whence > io.SeekEnd:
		return 0, sys.EINVAL
	case offset != 0 || whence != io.SeekStart:
		return 0, sys.EISDIR
	}
	return 0, d.rewind()
}

// Readdir implements [sys.File]. A call that would return more than 4096
// entries is [sys.ERANGE]; ask for fewer at a time, after going back to the
// start.
func (d *dir) Readdir(n int) ([]sys.Dirent, sys.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, sys.EBADF
	}
	limit := n
	if n <= 0 || n > maxDirents {
		limit = maxDirents + 1 // one more tells whether the rest fits
	}

	dirents, errno := d.next(limit)
	if errno == 0 && len(dirents) > maxDirents {
		return nil, sys.ERANGE
	}
	return dirents, errno
}

// next returns n entries, or fewer at the end of the directory.
func (d *dir) next(n int) ([]sys.Dirent, sys.Errno) {
	var dirents []sys.Dirent
	for len(dirents) < n {
		// Only names: on its own os.File would look at the entries by path.
		names, err := d.list.Readdirnames(n - len(dirents))
		if errors.Is(err, io.EOF) || err == nil && len(names) == 0 {
			return dirents, 0
		}
		if err != nil {
			return nil, d.fs.errno(err)
		}

		for _, name := range names {
			if e, ok := d.entry(name); ok {
				dirents = append(dirents, e)
			}
		}
	}

	return dirents, 0
}

// entry describes one entry, unless it has been removed since it was listed.
func (d *dir) entry(name string) (sys.Dirent, bool) {
	fi, err := d.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return sys.Dirent{}, false
	case err != nil:
		return sys.Dirent{Name: name, Type: fs.ModeIrregular}, true
	}
	return sys.Dirent{Name: name, Type: fi.Mode().Type(), Ino: wasys.NewStat_t(fi).Ino}, true
}

// Sync implements [sys.File].
func (d *dir) Sync() sys.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fs.errno(d.list.Sync())
}

// Datasync implements [sys.File] as Sync.
func (d *dir) Datasync() sys.Errno { return d.Sync() }

// Utimens implements [sys.File], with the precision of [FS.Utimens].
func (d *dir) Utimens(atim, mtim int64) sys.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return sys.EBADF
	case d.fs.readOnly:
		return sys.EROFS
	}
	return d.fs.errno(setTimes(d.list, atim, mtim))
}

// Close implements [sys.File].
func (d *dir) Close() sys.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0
	}
	d.closed = true
	d.fs.forget(d)
	if d.counted {
		d.fs.limits.dropFile()
	}
	return d.fs.errno(d.closeHandles())
}

func (d *dir) closeHandles() error {
	return errors.Join(d.list.Close(), d.root.Close())
}
