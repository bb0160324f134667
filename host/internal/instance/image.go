package instance

import (
	"os"
	"slices"
	"sync"

	"github.com/toolhost/toolhost/internal/checkpoint"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Image is the initial content of a memory: the data of a module, or all its
// memory after start-up. Everything else is zero. An image is immutable, and
// shared by the instances made from it.
type Image struct {
	account *Account // pays for it
	size    uint64   // size of the memory, a multiple of its page
	at      uint64   // offset of the data
	bytes   []byte
	digest  func() checkpoint.Digest // computed once
	file    *os.File                 // a file with the same content, to be mapped; nil where copying is faster or the only way
}

// copyMost is the largest image that is copied into a memory. Mapping it costs a
// system call, and a fault for each page that is used.
const copyMost = 128 << 10

// NewImage returns the image of a memory of size bytes that contains data at the offset at,
// and zeros elsewhere. The error matches ErrMemory. Close the image after use.
func (a *Account) NewImage(data []byte, at, size uint64) (*Image, error) {
	i := &Image{account: a, size: size, at: at}
	i.digest = sync.OnceValue(func() checkpoint.Digest { return checkpoint.DigestImage(i.bytes, i.at) })
	if a.ledger.HeapOnly || len(data) <= copyMost {
		return i, i.copy(data)
	}

	// Mappings begin and end at pages of the system; Wasm pages are multiples of
	// those.
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

// copy makes the image own a copy of data.
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

// apply puts the image into a zero memory. It reports false if that failed; the
// memory may then have any content.
func (i *Image) apply(room []byte, mapped bool) bool {
	part := room[i.at:][:len(i.bytes)]
	if mapped && i.file != nil {
		return overlay(part, i.file) == nil
	}
	copy(part, i.bytes)
	return true
}

// covers reports whether mapping this image over a memory with another mapped image
// hides all of the other one.
func (i *Image) covers(other *Image) bool {
	return other.file == nil ||
		i.file != nil && i.at <= other.at && i.at+uint64(len(i.bytes)) >= other.at+uint64(len(other.bytes))
}

// restore gives memory, which begins at the offset from, the content of the image.
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

// Close frees the image. Nothing may read it afterwards; memories made from it
// remain valid.
func (i *Image) Close() {
	n := uint64(len(i.bytes))
	if i.file != nil {
		unreserve(i.bytes)
		_ = i.file.Close()
	}
	i.account.Give(Images, n)
	i.bytes, i.file = nil, nil
}
