package host

import (
	"encoding/binary"
	"os"
	"unsafe"
)

// pagemap tells which pages of a private mapping of a file were written to, as
// Linux documents in Documentation/admin-guide/mm/pagemap.rst: the first write
// makes a page anonymous, no longer one of the file.
type pagemap struct {
	file *os.File // nil where there is none
	size uint64   // of a page
}

// Bits of an entry.
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageOfFile  = 1 << 61
	pageEntry   = 8 // bytes
)

func openPagemap() *pagemap {
	file, err := os.Open("/proc/self/pagemap")
	if err != nil {
		file = nil
	}
	return &pagemap{file: file, size: uint64(os.Getpagesize())}
}

// pages returns where in a mapping pages were written to. It is false if the
// system does not tell.
func (p *pagemap) pages(mapping []byte) ([]uint64, bool) {
	if p.file == nil {
		return nil, false
	}
	n := (uint64(len(mapping)) + p.size - 1) / p.size
	entries := make([]byte, n*pageEntry)
	first := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mapping)))) / p.size
	if _, err := p.file.ReadAt(entries, int64(first*pageEntry)); err != nil {
		return nil, false
	}
	var pages []uint64
	for i := range n {
		e := binary.LittleEndian.Uint64(entries[i*pageEntry:])
		if e&(pagePresent|pageSwapped) != 0 && e&pageOfFile == 0 {
			pages = append(pages, i*p.size)
		}
	}
	return pages, true
}

func (p *pagemap) close() {
	if p != nil && p.file != nil {
		_ = p.file.Close()
	}
}
