package instance

import (
	"encoding/binary"
	"os"
	"unsafe"
)

// pagemap says which pages of a private mapping were written to, as Linux
// documents in Documentation/admin-guide/mm/pagemap.rst: the first write makes a
// page anonymous, no longer one of the file. For memory without a file it says
// which pages were touched.
type pagemap struct {
	file *os.File // nil where the system has no page map
	size uint64   // of a page
}

// Bits of an entry.
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageOfFile  = 1 << 61
	pageEntry   = 8 // bytes
)

// pagemapPath is where Linux has it for this process.
const pagemapPath = "/proc/self/pagemap"

// openPagemap opens what Linux has at path. If that does not work here, or does
// not tell the truth, it tells nothing.
func openPagemap(path string) *pagemap {
	p := &pagemap{size: uint64(os.Getpagesize())}
	file, err := os.Open(path)
	if err != nil {
		return p
	}
	p.file = file
	if !p.works() {
		p.close()
		p.file = nil
	}
	return p
}

// works tries it out. There are systems where it reads as zeros, and a memory
// would stay as it is.
func (p *pagemap) works() bool {
	const pages = 4
	data := make([]byte, pages*p.size)
	for i := range data {
		data[i] = 1
	}

	file, mapped, err := memoryFile(data, 0, uint64(len(data)))
	if err != nil {
		return false
	}
	defer func() {
		unreserve(mapped)
		_ = file.Close()
	}()

	room, err := reserve(2 * uint64(len(data)))
	if err != nil {
		return false
	}
	defer unreserve(room)
	if overlay(room[:len(data)], file) != nil {
		return false
	}
	read := room[2*p.size] // has a page, and was not written to
	room[p.size] = read + 1
	room[5*p.size] = 1 // beyond the file
	found, ok := p.pages(room, make([]uint64, 0, pages))
	return ok && len(found) == 2 && found[0] == p.size && found[1] == 5*p.size
}

// pages appends where in a mapping pages were written to. It is false if the
// system does not tell, or if they are more than pages can hold.
func (p *pagemap) pages(mapping []byte, pages []uint64) ([]uint64, bool) {
	if p.file == nil {
		return nil, false
	}

	var entries [8 << 10]byte // those of 4 MiB, if pages have 4 KiB
	length := uint64(len(mapping))
	first := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mapping)))) / p.size
	for at := uint64(0); at < length; {
		some := entries[:min(uint64(len(entries)), (length-at)/p.size*pageEntry)]
		if _, err := p.file.ReadAt(some, int64((first+at/p.size)*pageEntry)); err != nil {
			return nil, false
		}
		for ; len(some) > 0; some, at = some[pageEntry:], at+p.size {
			e := binary.LittleEndian.Uint64(some)
			if e&(pagePresent|pageSwapped) == 0 || e&pageOfFile != 0 {
				continue
			}
			if len(pages) == cap(pages) {
				return nil, false
			}
			pages = append(pages, at)
		}
	}

	return pages, true
}

func (p *pagemap) close() {
	if p.file != nil {
		_ = p.file.Close()
	}
}
