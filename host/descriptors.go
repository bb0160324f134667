package host

import (
	"io/fs"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental/sys"

	"github.com/toolhost/toolhost/internal/rootfs"
)

// descriptors are the open file descriptors of an instance, which wazero does not show.
type descriptors struct {
	open   map[uint32]*listing // nil for anything but a directory
	opened sys.File            // what path_open has opened last
	result uint32              // address to which it is about to write the descriptor
	closes uint32              // the descriptor that fd_close is about to close
}

// newDescriptors returns the descriptors of a new instance: the standard streams.
func newDescriptors() descriptors {
	return descriptors{open: map[uint32]*listing{0: nil, 1: nil, 2: nil}}
}

// before records what a WASI function is about to open or close.
func (d *descriptors) before(function string, stack []uint64) {
	switch function {
	case "path_open":
		d.result = uint32(stack[8])
	case "fd_close":
		d.closes = uint32(stack[0])
	}
}

// after records what the function has opened or closed.
func (d *descriptors) after(function string, mem api.Memory, results []uint64) {
	switch {
	case function == "path_open" && uint32(results[0]) == 0:
		if fd, ok := mem.ReadUint32Le(d.result); ok {
			d.open[fd] = listingOf(d.opened)
		}
	case function == "fd_close" && uint32(results[0]) == 0:
		delete(d.open, d.closes)
	}
}

// listingOf returns the listing of an open file, if it is a directory.
func listingOf(file sys.File) *listing {
	if dir, errno := file.IsDir(); !dir || errno != 0 {
		return nil
	}
	return &listing{dir: file}
}

// folder is a granted folder. It records what is opened.
type folder struct {
	*rootfs.FS
	files *descriptors
}

// OpenFile implements sys.FS.
func (f folder) OpenFile(path string, flag sys.Oflag, perm fs.FileMode) (sys.File, sys.Errno) {
	file, errno := f.FS.OpenFile(path, flag, perm)
	f.files.opened = file
	return file, errno
}
