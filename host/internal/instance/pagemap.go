package instance

import (
	"encoding/binary"
	"os"
	"unsafe"
)

// pagemap reports which pages of a private mapping were written to, as
// documented in Linux's Documentation/admin-guide/mm/pagemap.rst: the first
// write makes a page anonymous, no longer one of the file. For memory without a
// file it reports which pages were touched.
type pagemap struct {
	file *os.File // nil if the system has no page map
	size uint64   // size of a page
}

// Bits of an entry.
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageOfFile  = 1 << 61
	pageEntry   = 8 // bytes
)

// pagemapPath is Linux's page map of this process.
const pagemapPath = "/proc/self/pagemap"

// openPagemap opens the page map at path. If it does not work here or is not
// truthful, the result reports nothing.
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

// works tests the page map. On some systems it reads as zeros, and memories
// would not be reset.
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
	read := room[2*p.size] // a page that was read but not written
	room[p.size] = read + 1
	room[5*p.size] = 1 // beyond the end of the file
	found, ok := p.pages(room, make([]uint64, 0, pages))
	return ok && len(found) == 2 && found[0] == p.size && found[1] == 5*p.size
}

// pages appends the offsets of the written pages in a mapping. It reports
// false if the system does not know them, or if pages has no room for all.
func (p *pagemap) pages(mapping []byte, pages []uint64) ([]uint64, bool) {
	if p.file == nil {
		return nil, false
	}

	var entries [8 << 10]byte // entries for 4 MiB of 4 KiB pages
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
