package wasi

import (
	"encoding/binary"
	"io"
	"io/fs"
	"slices"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental/sys"
)

const (
	// Sizes and offsets of fd_readdir.
	direntBytes = 24
	direntNode  = 8
	direntName  = 16 // its length
	direntType  = 20

	direntsAtOnce = 128 // entries read from a directory at a time
	direntsKept   = 256 // entries of a descriptor that stay in memory: no call pays for them

	// direntCost is the cost of reading an entry in units of fuel.
	direntCost = 100
)

// readDirectory is WASI's fd_readdir. wazero's own version cannot go back in a directory.
func readDirectory(c *Call, mem api.Memory, stack []uint64) uint32 {
	size, position, result := uint32(stack[2]), stack[3], uint32(stack[4])
	if size < direntBytes {
		return errnoInvalid
	}
	into, ok := mem.Read(uint32(stack[1]), size)
	if _, fits := mem.Read(result, 4); !ok || !fits {
		return errnoFault
	}
	open := c.env.files.open[uint32(stack[0])]
	if open == nil || open.listing == nil {
		return errnoBadDescriptor
	}

	used, errno := open.listing.write(c, into, position)
	if errno != 0 {
		return numberOf(errno)
	}
	c.Ops.Meter.Charge(used)
	mem.WriteUint32Le(result, uint32(used))
	return 0
}

// numberOf returns WASI's number for an error of a directory.
func numberOf(errno sys.Errno) uint32 {
	switch errno {
	case sys.EACCES:
		return errnoAccess
	case sys.EBADF:
		return errnoBadDescriptor
	case sys.ENOENT:
		return errnoNoEntry
	case sys.EPERM:
		return errnoPermission
	}
	return errnoIO
}

// listing is the content of an open directory. An entry keeps its position until the guest
// lists the directory anew, from position 0.
type listing struct {
	dir   sys.File
	first uint64 // position of the first entry in memory
	kept  []sys.Dirent
	end   bool // nothing follows
}

// write writes the entries from a position on, as many as fit. If it fills into, more may
// follow, and the last one may be cut.
func (l *listing) write(c *Call, into []byte, position uint64) (used int, errno sys.Errno) {
	rest := into
	for {
		entries, errno := l.from(c, position)
		if len(entries) == 0 || errno != 0 {
			return len(into) - len(rest), errno
		}

		for _, e := range entries {
			if len(rest) < direntBytes {
				return len(into), 0
			}
			position++
			binary.LittleEndian.PutUint64(rest, position)
			binary.LittleEndian.PutUint64(rest[direntNode:], e.Ino)
			binary.LittleEndian.PutUint32(rest[direntName:], uint32(len(e.Name)))
			binary.LittleEndian.PutUint32(rest[direntType:], fileType(e.Type))
			n := copy(rest[direntBytes:], e.Name)
			if n < len(e.Name) {
				return len(into), 0
			}
			rest = rest[direntBytes+n:]
		}
	}
}

// from returns entries from a position on, or none at the end of the directory. To go back
// to an entry that is no longer in memory, it lists the directory anew.
func (l *listing) from(c *Call, position uint64) ([]sys.Dirent, sys.Errno) {
	if position == 0 || position < l.first {
		if errno := l.rewind(); errno != 0 {
			return nil, errno
		}
	}

	for {
		next := l.first + uint64(len(l.kept))
		switch {
		case position < next:
			return l.kept[position-l.first:], 0
		case l.end && position > next:
			return nil, sys.ENOENT
		case l.end:
			return nil, 0
		}

		c.Ops.Meter.Pay(direntsAtOnce * direntCost)
		entries, errno := l.dir.Readdir(direntsAtOnce)
		if errno != 0 {
			return nil, errno
		}
		l.kept, l.end = append(l.kept, entries...), len(entries) < direntsAtOnce
		if more := len(l.kept) - direntsKept; more > 0 {
			l.kept, l.first = slices.Delete(l.kept, 0, more), l.first+uint64(more)
		}
	}
}

// rewind goes to the start of the directory.
func (l *listing) rewind() sys.Errno {
	node, errno := l.dir.Ino()
	if errno == 0 {
		_, errno = l.dir.Seek(0, io.SeekStart)
	}
	l.first, l.end = 0, false
	l.kept = append(l.kept[:0], sys.Dirent{Name: ".", Ino: node, Type: fs.ModeDir}, sys.Dirent{Name: "..", Type: fs.ModeDir})
	return errno
}

// fileType returns the type of a file in WASI.
func fileType(mode fs.FileMode) uint32 {
	switch {
	case mode.IsRegular():
		return 4
	case mode.IsDir():
		return 3
	case mode&fs.ModeSymlink != 0:
		return 7
	}
	return 0 // unknown: it cannot be opened
}
