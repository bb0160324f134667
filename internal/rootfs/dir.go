package rootfs

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/tetratelabs/wazero/experimental/sys"
	wasys "github.com/tetratelabs/wazero/sys"
)

// maxDirents is the most entries one Readdir returns. wazero keeps them for each open
// directory, and takes fewer entries than it asked for as the end of the directory, so
// a longer listing cannot be cut, only refused.
const maxDirents = 4096

// dir is an open directory. It implements [sys.File].
type dir struct {
	sys.DirFile // refuses what only files do: EISDIR

	handle           // the directory, to list it
	counted bool     // counts as an open file
	root    *os.Root // the directory, to look up its entries
}

var _ sys.File = (*dir)(nil)

// dirAt opens a directory; anything else is refused without being opened.
func (f *FS) dirAt(n string) (*dir, error) {
	// With the dot n is opened as a directory on the way to it; without, a
	// FIFO swapped in for n would block.
	root, err := f.root.OpenRoot(n + "/.")
	if err != nil {
		return nil, err
	}

	d := &dir{handle: handle{fs: f}, root: root}
	if d.os, err = root.Open("."); err == nil {
		d.info, err = d.os.Stat()
	}
	if err != nil {
		_ = d.closeHandles() // harmless for a nil file
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
	_ = d.os.Close()
	d.os = list
	return 0
}

// Seek implements [sys.File] for going back to the start; any other move in a
// directory is [sys.EISDIR].
func (d *dir) Seek(offset position, whence int) (position, sys.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	errno := d.seekable(whence)
	switch {
	case errno != 0:
		return 0, errno
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
		names, err := d.os.Readdirnames(n - len(dirents))
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

// Close implements [sys.File].
func (d *dir) Close() sys.Errno {
	return d.close(d, d.counted, d.closeHandles)
}

func (d *dir) closeHandles() error {
	return errors.Join(d.os.Close(), d.root.Close())
}
