package wasi

import (
	"io/fs"
	"math"
	"strings"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental/sys"

	"github.com/toolhost/toolhost/internal/rootfs"
)

const (
	// Rights of a descriptor, and their offset in the result of fd_fdstat_get.
	rightRead, rightWrite = 1 << 1, 1 << 6
	rightSetSizeOfPath    = 1 << 19
	rightsAt              = 8

	// noDescriptor is the number that stands for no descriptor. Go's runtime passes it
	// with a path that is in no granted folder.
	noDescriptor = math.MaxUint32

	// maxRenumbered is how many times an instance can renumber a descriptor: the one that
	// had the number before stays in wazero's table.
	maxRenumbered = 256
)

// descriptor is an open file descriptor.
type descriptor struct {
	slot    uint32    // number in wazero's table
	folder  string    // path of a granted folder; empty for anything else
	file    sys.File  // nil for a stream or a granted folder
	flag    sys.Oflag // flags that the file was opened with
	listing *listing  // nil for anything but a directory
}

// descriptors are the open file descriptors of an instance, which wazero does not show.
type descriptors struct {
	open       map[uint32]*descriptor // descriptors by the guest's number
	renumbered int                    // number of renumberings; while it is 0, each number equals its slot

	opened  *descriptor // the descriptor that path_open opened last
	number  uint32      // number of the descriptor that fd_close, fd_allocate or fd_fdstat_get is about to use
	result  uint32      // address to which path_open or fd_fdstat_get is about to write
	outside bool        // whether a function is about to use a path in no granted folder
}

// newDescriptors returns the descriptors of a new instance: the standard streams.
func newDescriptors() descriptors {
	return descriptors{open: map[uint32]*descriptor{0: {slot: 0}, 1: {slot: 1}, 2: {slot: 2}}}
}

// before records what a WASI function is about to do, and replaces the guest's numbers with
// wazero's: in both of wazero's engines, the stack that a listener gets is also the one that
// the function and its results use.
func (d *descriptors) before(f checked, stack []uint64) {
	d.outside = false
	if len(f.descriptors) == 0 {
		return
	}
	d.number = uint32(stack[f.descriptors[0]])
	switch f.name {
	case "path_open":
		d.result = uint32(stack[8])
	case "fd_fdstat_get":
		d.result = uint32(stack[1])
	}

	for _, i := range f.descriptors {
		number, slot := uint32(stack[i]), uint32(noDescriptor)
		d.outside = d.outside || number == noDescriptor && strings.HasPrefix(f.name, "path_")
		if d.renumbered == 0 {
			continue
		}
		if open := d.open[number]; open != nil {
			slot = open.slot
		}
		stack[i] = uint64(slot)
	}
}

// manyParams says which parameters of a function are descriptors, if not the first one.
var manyParams = map[string][]int{"path_link": {0, 4}, "path_rename": {0, 3}, "path_symlink": {2}}

var firstParam = []int{0}

// descriptorParams returns which parameters of a function are descriptors, if it is one of
// wazero's.
func descriptorParams(function string) []int {
	if _, own := own[function]; own {
		return nil
	}
	if params := manyParams[function]; params != nil {
		return params
	}
	if strings.HasPrefix(function, "fd_") || strings.HasPrefix(function, "path_") || strings.HasPrefix(function, "sock_") {
		return firstParam
	}
	return nil
}

// after records what the function has done, and corrects its results.
func (d *descriptors) after(c *Call, function string, mem api.Memory, results []uint64) {
	failed := len(results) > 0 && uint32(results[0]) != 0
	switch {
	case failed && d.outside:
		results[0], c.Outside = errnoNoEntry, true // what a libc reports, so programs continue
	case failed:
	case function == "path_open":
		d.add(mem)
	case function == "fd_close":
		delete(d.open, d.number)
	case function == "fd_allocate":
		if open := d.open[d.number]; open != nil && open.listing != nil {
			results[0] = errnoBadDescriptor // wazero takes a directory for a file of its size
		}
	case function == "fd_fdstat_get":
		d.describe(mem)
	}
}

// add adds what path_open has opened, under the lowest number that is free.
func (d *descriptors) add(mem api.Memory) {
	slot, ok := mem.ReadUint32Le(d.result)
	if !ok {
		return
	}
	number := slot
	if d.renumbered > 0 {
		for number = 0; d.open[number] != nil; number++ {
		}
		mem.WriteUint32Le(d.result, number)
	}
	d.opened.slot = slot
	d.open[number] = d.opened
}

// syncFlags lists flags of a file, as wazero opens it and as WASI reports them.
var syncFlags = []struct {
	opened   sys.Oflag
	reported uint16
}{{sys.O_DSYNC, 1 << 1}, {sys.O_RSYNC, 1 << 3}, {sys.O_SYNC, 1 << 4}}

// describe corrects the status of a descriptor: wazero reports neither how a file was opened,
// nor that no function sets the size of a path.
func (d *descriptors) describe(mem api.Memory) {
	open := d.open[d.number]
	flags, ok := mem.ReadUint16Le(d.result + flagsAt)
	rights, fits := mem.ReadUint64Le(d.result + rightsAt)
	if open == nil || !ok || !fits {
		return
	}
	if open.listing != nil {
		rights &^= rightSetSizeOfPath
	} else if open.file != nil {
		for _, f := range syncFlags {
			if open.flag&f.opened != 0 {
				flags |= f.reported
			}
		}
		switch open.flag & (sys.O_RDONLY | sys.O_RDWR | sys.O_WRONLY) {
		case sys.O_RDONLY:
			rights &^= rightWrite
		case sys.O_WRONLY:
			rights &^= rightRead
		}
	}
	mem.WriteUint16Le(d.result+flagsAt, flags)
	mem.WriteUint64Le(d.result+rightsAt, rights)
}

// renumber is WASI's fd_renumber. wazero's own version refuses streams and folders, and
// grows its table to any number that a guest names.
func renumber(c *Call, _ api.Memory, stack []uint64) uint32 {
	d := &c.env.files
	from, to := uint32(stack[0]), uint32(stack[1])
	moved, replaced := d.open[from], d.open[to]
	switch {
	case moved == nil || replaced == nil:
		return errnoBadDescriptor
	case from == to:
		return 0
	case d.renumbered == maxRenumbered:
		return errnoTooManyFiles
	}

	if replaced.file != nil {
		if errno := replaced.file.Close(); errno != 0 {
			return numberOf(errno)
		}
	}
	delete(d.open, from)
	d.open[to] = moved
	d.renumbered++
	return 0
}

// folderName is WASI's fd_prestat_dir_name. wazero's own version truncates the path if the
// buffer is too short, and refuses a buffer longer than the path.
func folderName(c *Call, mem api.Memory, stack []uint64) uint32 {
	open := c.env.files.open[uint32(stack[0])]
	switch {
	case open == nil || open.folder == "":
		return errnoBadDescriptor
	case uint64(uint32(stack[2])) < uint64(len(open.folder)):
		return errnoNameTooLong
	case !mem.WriteString(uint32(stack[1]), open.folder):
		return errnoFault
	}
	return 0
}

// shutdown is WASI's sock_shutdown: no descriptor is a socket.
func shutdown(c *Call, _ api.Memory, stack []uint64) uint32 {
	if c.env.files.open[uint32(stack[0])] == nil {
		return errnoBadDescriptor
	}
	return errnoNotSocket
}

// setRights is WASI's fd_fdstat_set_rights. wazero's own version says that there is no such
// function, which programs take for a host that has rights.
func setRights(*Call, api.Memory, []uint64) uint32 { return errnoNotSupported }

// folder is a granted folder. It records what is opened in it.
type folder struct {
	*rootfs.FS
	files *descriptors
}

// OpenFile implements sys.FS.
func (f folder) OpenFile(path string, flag sys.Oflag, perm fs.FileMode) (sys.File, sys.Errno) {
	file, errno := f.FS.OpenFile(path, flag, perm)
	if errno != 0 {
		return nil, errno
	}
	f.files.opened = &descriptor{file: file, flag: flag}
	if dir, errno := file.IsDir(); dir && errno == 0 {
		f.files.opened.listing = &listing{dir: file}
	}
	return file, 0
}
