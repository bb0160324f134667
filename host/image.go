package host

import (
	"os"
	"slices"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// image is what a memory starts with: the data of a module, or all its memory
// after it has started up. What it does not hold is zero. It is shared by the
// instances made from it and does not change.
type image struct {
	account *account // pays for it
	size    uint64   // of the memory, a multiple of its page
	at      uint64   // where bytes lie
	bytes   []byte
	file    *os.File // of the same content, to be mapped; nil where copying is quicker, or all there is
}

// copyMost is up to which size a memory is put back by copying: laying out anew
// what was mapped takes a system call and a fault for each page that is used.
const copyMost = 128 << 10

// newImage returns an image of a memory of size bytes that has data at some
// place. Its error matches ErrMemory.
func (a *account) newImage(data []byte, at, size uint64) (*image, error) {
	i := &image{account: a, size: size, at: at}
	if a.pool.heapOnly || len(data) <= copyMost {
		return i, i.keep(data)
	}
	// What is mapped begins and ends with pages of the system, of which those of
	// wasm are multiples.
	i.at = at / wasmbin.PageSize * wasmbin.PageSize
	length := (at + uint64(len(data)) - i.at + wasmbin.PageSize - 1) / wasmbin.PageSize * wasmbin.PageSize
	if err := a.take(length); err != nil {
		return nil, err
	}
	file, mapped, err := memoryFile(data, at-i.at, length)
	if err != nil {
		a.give(length)
		i.at = at
		return i, i.keep(data)
	}
	i.file, i.bytes = file, mapped
	a.count(countImages, int64(length))
	return i, nil
}

// keep makes the image a copy of data.
func (i *image) keep(data []byte) error {
	if err := i.account.take(uint64(len(data))); err != nil {
		return err
	}
	i.bytes = slices.Clone(data)
	i.account.count(countImages, int64(len(data)))
	return nil
}

// lay puts the image into a memory that is zero. It is false if that failed,
// and what is there may then be anything.
func (i *image) lay(room []byte, mapped bool) bool {
	part := room[i.at:][:len(i.bytes)]
	if mapped && i.file != nil {
		return overlay(part, i.file) == nil
	}
	copy(part, i.bytes)
	return true
}

// restore copies the part of the image that starts at from over memory.
func (i *image) restore(memory []byte, from uint64) {
	before := min(i.at-min(i.at, from), uint64(len(memory)))
	clear(memory[:before])
	memory, from = memory[before:], from+before
	n := 0
	if end := i.at + uint64(len(i.bytes)); len(memory) > 0 && from < end {
		n = copy(memory, i.bytes[from-i.at:])
	}
	clear(memory[n:])
}

// close gives back what the image holds. Nothing may look at it from then on;
// memories that were made from it stay as they are.
func (i *image) close() {
	n := uint64(len(i.bytes))
	if i.file != nil {
		unreserve(i.bytes)
		_ = i.file.Close()
	}
	i.account.give(n)
	i.account.count(countImages, -int64(n))
	i.bytes, i.file = nil, nil
}
