// Package extism runs plugins that were built for Extism, and for hyper-mcp on Extism. It
// provides the functions that they import and the kernel: the memory that a plugin shares
// with its host, blocks of bytes outside the plugin's own memory, which it reads and
// writes by handles. Extism implements its kernel as a Wasm module.
package extism

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
)

// ErrFull means that a block would exceed the kernel's size limit.
var ErrFull = errors.New("the kernel is full")

// Kernel is the memory that a plugin shares with its host during one call. The zero Kernel
// has no memory: Reset it before each call. It must not be used concurrently.
//
// Handles are offsets in the memory. 0 is invalid. A plugin may read and write anywhere in
// the memory, as in Extism, but cannot reach the kernel's own data about its blocks.
type Kernel struct {
	memory []byte
	blocks []block   // sorted by offset
	free   [64][]int // indexes of free blocks, by the bit length of their size
	config Config

	input, inputLength   uint64
	output, outputLength uint64
	failure              uint64
}

// Config limits a kernel.
type Config struct {
	Limit uint64 // maximum total size of the kernel's memory and block table, in bytes; below 4 GiB
	// Pay is called before the kernel allocates more bytes on the Go heap.
	Pay func(bytes uint64) error
}

// block is an allocated range of the memory.
type block struct {
	at, size, used uint32
	active         bool
}

const (
	reserved  = 64       // bytes at the beginning of the memory that belong to no block
	alignment = 8        // alignment of blocks: a 64-bit store at the end of one stays within it
	blockCost = 32       // bytes of a block's entry in the table
	keptMost  = 64 << 10 // bytes of memory kept for the next call
)

// Reset empties the kernel, and clears everything that the previous call left.
func (k *Kernel) Reset(config Config) {
	if cap(k.memory) > keptMost || cap(k.blocks) > keptMost/blockCost {
		*k = Kernel{}
	}
	clear(k.memory)
	for i := range k.free {
		k.free[i] = k.free[i][:0]
	}
	*k = Kernel{memory: k.memory[:0], blocks: k.blocks[:0], free: k.free, config: config}
}

// Size returns how much of the limit is used, in bytes.
func (k *Kernel) Size() uint64 { return uint64(len(k.memory)) + uint64(len(k.blocks))*blockCost }

// Alloc returns the handle of a new block of n bytes with undefined content, or 0 if n is
// 0. Its error is ErrFull, or that of Config.Pay.
func (k *Kernel) Alloc(n uint64) (uint64, error) {
	if n == 0 {
		return 0, nil
	}
	if n > k.config.Limit {
		return 0, ErrFull
	}
	size := (n + alignment - 1) &^ (alignment - 1)
	if i := k.takeFree(size); i >= 0 {
		k.blocks[i].used, k.blocks[i].active = uint32(n), true
		return uint64(k.blocks[i].at), nil
	}

	at := max(uint64(len(k.memory)), reserved)
	if err := k.grow(at + size); err != nil {
		return 0, err
	}
	k.blocks = append(k.blocks, block{uint32(at), uint32(size), uint32(n), true})
	return at, nil
}

// takeFree returns the index of a free block of at least this size, or -1. It tries one
// block of about this size, and then only larger ones, so a plugin cannot slow down the
// search.
func (k *Kernel) takeFree(size uint64) int {
	class := bits.Len64(size)
	if own := k.free[class]; len(own) > 0 && uint64(k.blocks[own[len(own)-1]].size) < size {
		class++
	}
	for last := min(class+1, len(k.free)-1); class <= last; class++ {
		if own := k.free[class]; len(own) > 0 {
			k.free[class] = own[:len(own)-1]
			return own[len(own)-1]
		}
	}
	return -1
}

// grow grows the memory to size, for one more block.
func (k *Kernel) grow(size uint64) error {
	const more = blockCost
	if size+uint64(len(k.blocks)+1)*blockCost > k.config.Limit {
		return ErrFull
	}
	if size <= uint64(cap(k.memory)) {
		if err := k.config.Pay(more); err != nil {
			return err
		}
		k.memory = k.memory[:size]
		return nil
	}

	room := min(max(size, 2*uint64(cap(k.memory)), 4<<10), max(size, k.config.Limit))
	if err := k.config.Pay(room - uint64(cap(k.memory)) + more); err != nil {
		return err
	}
	memory := make([]byte, size, room)
	copy(memory, k.memory)
	k.memory = memory
	return nil
}

// find returns the index of the block with that handle.
func (k *Kernel) find(handle uint64) (i int, found bool) {
	i, found = slices.BinarySearchFunc(k.blocks, handle, func(b block, handle uint64) int { return cmp.Compare(uint64(b.at), handle) })
	return i, found && k.blocks[i].active
}

// Free frees a block. It does nothing if the handle is invalid.
func (k *Kernel) Free(handle uint64) {
	i, found := k.find(handle)
	if !found {
		return
	}
	b := &k.blocks[i]
	b.active = false
	class := bits.Len32(b.size)
	k.free[class] = append(k.free[class], i)
	if handle == k.input {
		k.inputLength = 0
	}
}

// Length returns the length of a block in bytes, or 0 if the handle is invalid.
func (k *Kernel) Length(handle uint64) uint64 {
	return uint64(len(k.Block(handle)))
}

// Block returns the content of a block, or nil if the handle is invalid. The content is
// valid until the kernel is used again.
func (k *Kernel) Block(handle uint64) []byte {
	i, found := k.find(handle)
	if !found {
		return nil
	}
	b := k.blocks[i]
	return k.memory[b.at : b.at+b.used : b.at+b.used]
}

// Put allocates a block with this content. Its errors are those of Alloc.
func (k *Kernel) Put(content []byte) (uint64, error) {
	handle, err := k.Alloc(uint64(len(content)))
	if err == nil {
		copy(k.memory[handle:], content)
	}
	return handle, err
}

// Range returns n bytes of the memory, or nil if they are not all within it. They are valid
// until the kernel is used again.
func (k *Kernel) Range(at, n uint64) []byte {
	if at < reserved || at > uint64(len(k.memory)) || n > uint64(len(k.memory))-at {
		return nil
	}
	return k.memory[at : at+n]
}

// SetInput copies the input of the call into a block. Its errors are those of Alloc.
func (k *Kernel) SetInput(input []byte) (err error) {
	k.input, err = k.Put(input)
	if err == nil {
		k.inputLength = uint64(len(input))
	}
	return err
}

// Input returns the handle and the length of the input.
func (k *Kernel) Input() (handle, length uint64) { return k.input, k.inputLength }

// Input8 returns the byte of the input at an offset, or 0 beyond the end.
func (k *Kernel) Input8(at uint64) byte {
	if at >= k.inputLength {
		return 0
	}
	return k.memory[k.input+at]
}

// Input64 returns the 8 bytes of the input at an offset as a little-endian number, or 0 if
// fewer are left.
func (k *Kernel) Input64(at uint64) uint64 {
	if k.inputLength < 8 || at > k.inputLength-8 {
		return 0
	}
	return binary.LittleEndian.Uint64(k.memory[k.input+at:])
}

// SetOutput makes a range of the memory the output of the call, with the content that the
// range has when the call ends. It reports false if the range is out of bounds.
func (k *Kernel) SetOutput(at, length uint64) bool {
	if length == 0 {
		at = reserved
	} else if k.Range(at, length) == nil {
		return false
	}
	k.output, k.outputLength = at, length
	return true
}

// Output returns the output, which is valid until the kernel is used again.
func (k *Kernel) Output() []byte {
	if k.outputLength == 0 {
		return nil
	}
	return k.memory[k.output : k.output+k.outputLength]
}

// SetError makes a block the error text of the call. Handle 0 removes the text.
func (k *Kernel) SetError(handle uint64) { k.failure = handle }

// Error returns the error text, or nothing. It is valid until the kernel is used again.
func (k *Kernel) Error() []byte { return k.Block(k.failure) }
