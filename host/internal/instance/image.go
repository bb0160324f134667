package instance

import (
	"os"
	"slices"
	"sync"

	"github.com/toolhost/toolhost/internal/checkpoint"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Image is what a memory starts with: the data of a module, or all its memory
// after it has started up. What it does not hold is zero. The instances made from
// it share it, and it does not change.
type Image struct {
	account *Account // pays for it
	size    uint64   // of the memory, a multiple of its page
	at      uint64   // where bytes are
	bytes   []byte
	digest  func() checkpoint.Digest // computed once
	file    *os.File                 // of the same content, to be mapped; nil where copying is quicker, or all there is
}

// copyMost is up to which size an image is put into a memory by copying: mapping it
// takes a system call, and a fault for each page that is used.
const copyMost = 128 << 10

// NewImage returns an image of a memory of size bytes that has data at an offset.
// Its error matches ErrMemory. Close it.
func (a *Account) NewImage(data []byte, at, size uint64) (*Image, error) {
	i := &Image{account: a, size: size, at: at}
	i.digest = sync.OnceValue(func() checkpoint.Digest { return checkpoint.DigestImage(i.bytes, i.at) })
	if a.ledger.HeapOnly || len(data) <= copyMost {
		return i, i.copy(data)
	}

	// What is mapped begins and ends with pages of the system, of which those of
	// wasm are multiples.
	i.at = at / wasmbin.PageSize * wasmbin.PageSize
	length := (at + uint64(len(data)) - i.at + wasmbin.PageSize - 1) / wasmbin.PageSize * wasmbin.PageSize
	if err := a.Take(Images, length); err != nil {
		return nil, err
	}
	file, mapped, err := memoryFile(data, at-i.at, length)
	if err != nil {
		a.Give(Images, length)
		i.at = at
		return i, i.copy(data)
	}

	i.file, i.bytes = file, mapped
	return i, nil
}

// copy makes the image a copy of data.
func (i *Image) copy(data []byte) error {
	if err := i.account.Take(Images, uint64(len(data))); err != nil {
		return err
	}
	i.bytes = slices.Clone(data)
	return nil
}

// Digest identifies the content of the image.
func (i *Image) Digest() checkpoint.Digest { return i.digest() }

// Encode returns the content of the image for [checkpoint.DecodeImage].
func (i *Image) Encode() []byte {
	return checkpoint.EncodeImage(checkpoint.Image{Bytes: i.bytes, At: i.at})
}

// apply puts the image into a memory that is zero. It is false if that failed, and
// the memory may then hold anything.
func (i *Image) apply(room []byte, mapped bool) bool {
	part := room[i.at:][:len(i.bytes)]
	if mapped && i.file != nil {
		return overlay(part, i.file) == nil
	}
	copy(part, i.bytes)
	return true
}

// covers reports whether a memory that another image was mapped into shows nothing of
// that once this one is mapped over it.
func (i *Image) covers(other *Image) bool {
	return other.file == nil ||
		i.file != nil && i.at <= other.at && i.at+uint64(len(i.bytes)) >= other.at+uint64(len(other.bytes))
}

// restore copies the part of the image that starts at from over memory.
func (i *Image) restore(memory []byte, from uint64) {
	before := min(i.at-min(i.at, from), uint64(len(memory)))
	clear(memory[:before])
	memory, from = memory[before:], from+before

	n := 0
	if end := i.at + uint64(len(i.bytes)); len(memory) > 0 && from < end {
		n = copy(memory, i.bytes[from-i.at:])
	}
	clear(memory[n:])
}

// Close gives back what the image holds. Nothing may read it afterwards; memories
// that were made from it stay as they are.
func (i *Image) Close() {
	n := uint64(len(i.bytes))
	if i.file != nil {
		unreserve(i.bytes)
		_ = i.file.Close()
	}
	i.account.Give(Images, n)
	i.bytes, i.file = nil, nil
}
