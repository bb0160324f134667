package host

import "os"

// image is what a memory starts with: the data of a module, or all its memory
// after it has started up. It is shared by the instances made from it and does
// not change.
type image struct {
	size  uint64   // of the memory, a multiple of its page
	bytes []byte   // up to the last that is not zero
	file  *os.File // of that size and content, to be mapped; nil where copying is quicker, or all there is
}

// copyMost is up to which size a memory is put back by copying: laying out anew
// what was mapped takes a system call and a fault for each page that is used.
const copyMost = 128 << 10

// newImage returns an image of data, which it keeps, in a memory of size bytes.
func newImage(data []byte, size uint64) *image {
	i := &image{size: size, bytes: data}
	if size > copyMost && len(data) > 0 {
		if file, err := memoryFile(data, size); err == nil {
			i.file = file
		}
	}
	return i
}

// restore copies the part of the image that starts at from over memory.
func (i *image) restore(memory []byte, from uint64) {
	n := 0
	if from < uint64(len(i.bytes)) {
		n = copy(memory, i.bytes[from:])
	}
	clear(memory[n:])
}

// close gives back what the image holds. Memories that were made from it stay
// as they are.
func (i *image) close() {
	if i != nil && i.file != nil {
		_ = i.file.Close()
	}
}
