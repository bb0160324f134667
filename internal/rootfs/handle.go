package rootfs

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/tetratelabs/wazero/experimental/sys"
	wasys "github.com/tetratelabs/wazero/sys"
)

// handle is what open files and open directories have in common: the parts of
// [sys.File] that act on a descriptor.
type handle struct {
	fs   *FS
	os   *os.File
	info fs.FileInfo // as it was when opened
}

// Dev implements [sys.File].
func (h *handle) Dev() (uint64, sys.Errno) { return wasys.NewStat_t(h.info).Dev, 0 }

// Ino implements [sys.File].
func (h *handle) Ino() (wasys.Inode, sys.Errno) { return wasys.NewStat_t(h.info).Ino, 0 }

// Stat implements [sys.File].
func (h *handle) Stat() (wasys.Stat_t, sys.Errno) { return h.fs.stat(h.os.Stat()) }

// Sync implements [sys.File].
func (h *handle) Sync() sys.Errno { return h.fs.errno(h.os.Sync()) }

// Datasync implements [sys.File] in the same way as Sync.
func (h *handle) Datasync() sys.Errno { return h.Sync() }

// Utimens implements [sys.File], with the precision of [FS.Utimens].
func (h *handle) Utimens(atim, mtim int64) sys.Errno {
	if h.fs.readOnly() {
		return sys.EROFS
	}
	if errno := h.fs.changeable(h.os.Stat()); errno != 0 {
		return errno
	}
	return h.fs.errno(setTimes(h.os, atim, mtim))
}

// position is an alias for the sake of vet, which would otherwise insist that a
// method Seek return the error of [io.Seeker] instead of wazero's number.
type position = int64

// maxDirents is the maximum number of entries that one Readdir returns. wazero keeps
// them for each open directory, and takes fewer entries than it asked for as the end
// of the directory, so a longer listing cannot be cut, only refused.
const maxDirents = 4096

// dir is an open directory. It implements [sys.File].
type dir struct {
	sys.DirFile // refuses what only files do: EISDIR

	handle          // the directory, to list it
	root   *os.Root // the directory, to look up its entries
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

// Seek implements [sys.File]. It can only go back to the start of the directory, so that a
// listing shows entries made since then; any other move fails with [sys.EISDIR].
func (d *dir) Seek(offset position, whence int) (position, sys.Errno) {
	switch {
	case whence < io.SeekStart || whence > io.SeekEnd:
		return 0, sys.EINVAL
	case offset != 0 || whence != io.SeekStart:
		return 0, sys.EISDIR
	}
	_, err := d.os.Seek(0, io.SeekStart)
	return 0, d.fs.errno(err)
}

// Readdir implements [sys.File]. A call that would return more than 4096 entries fails with
// [sys.ERANGE]; go back to the start, and ask for fewer at a time.
func (d *dir) Readdir(n int) ([]sys.Dirent, sys.Errno) {
	if n <= 0 || n > maxDirents {
		n = maxDirents + 1 // one more shows whether the rest fits
	}

	var dirents []sys.Dirent
	for len(dirents) < n {
		// Only names: on its own os.File would look at the entries by path.
		names, err := d.os.Readdirnames(n - len(dirents))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			_, closed := d.os.Stat() // which Readdirnames does not tell apart
			return nil, d.fs.errno(cmp.Or(closed, err))
		}
		for _, name := range names {
			if e, ok := d.entry(name); ok {
				dirents = append(dirents, e)
			}
		}
	}

	if len(dirents) > maxDirents {
		return nil, sys.ERANGE
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
func (d *dir) Close() sys.Errno { return d.fs.close(d, d.closeHandles) }

func (d *dir) closeHandles() error { return errors.Join(d.os.Close(), d.root.Close()) }
