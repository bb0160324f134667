package host

import "github.com/tetratelabs/wazero/experimental"

// memory is the linear memory of one instance. It refuses to grow beyond the
// limit of the call, which the guest sees as a memory.grow that answers -1.
// Where it would grow beyond what the host has left, it ends the call: a guest
// that went on would do something else whenever others hold much.
type memory struct {
	account *account // pays for it
	image   *image   // what it starts with
	limit   uint64   // of the call
	most    uint64   // what the module declares, if that is less

	room   []byte // reserved, or allocated; its length is how far it may go
	mapped bool   // room is reserved
	size   uint64 // of the memory
	paid   uint64 // may be backed by memory: up to peak, or further from an earlier call
	anew   bool   // the next Reallocate makes it as large as its image

	peak    uint64
	refused error // why a growth was refused: what fails next is likely its fault
}

// Allocate implements experimental.MemoryAllocator. A module has one memory at
// most, and the caller has checked that its minimum is within the limit.
func (m *memory) Allocate(_, _ uint64) experimental.LinearMemory { return m }

// newMemory returns a memory as its image says. Its error matches ErrMemory.
func (a *account) newMemory(i *image, limit, most uint64) (*memory, error) {
	if err := a.take(i.size + a.beside); err != nil {
		return nil, err
	}
	m := &memory{account: a, image: i, limit: limit, most: most, size: i.size, paid: i.size, peak: i.size, anew: true}
	if !a.pool.heapOnly {
		room, err := reserve(max(min(limit, most), i.size))
		if err == nil && i.lay(room, true) {
			m.room, m.mapped = room, true
			return m, nil
		}
		if err == nil {
			unreserve(room)
		}
	}
	m.room = make([]byte, i.size)
	i.lay(m.room, false)
	return m, nil
}

// Reallocate implements experimental.LinearMemory.
func (m *memory) Reallocate(size uint64) []byte {
	switch {
	case m.anew:
		m.size, m.anew = m.image.size, false
	case !m.grow(size):
		return nil
	}
	return m.room[:m.size:m.size]
}

func (m *memory) grow(size uint64) bool {
	if size > m.limit {
		m.refused = overLimit(m.limit)
		return false
	}
	if size > m.most {
		return false
	}
	if size > m.paid {
		if err := m.account.take(size - m.paid); err != nil {
			panic(&ended{err})
		}
		m.paid = size
	}
	if size > uint64(len(m.room)) {
		room := make([]byte, min(m.limit, m.most, max(size, 2*uint64(len(m.room)))))
		copy(room, m.room[:m.size])
		m.room = room
	}
	m.size = size
	m.peak = max(m.peak, size)
	return true
}

// heapMost is the largest room on Go's heap that is kept for the next call.
const heapMost = 1 << 20

// reset puts the memory back to its image. It is false if that cannot be done.
// If it is larger than that, the instance still sees its old size: grow it by a
// page then, which shrinks it.
func (m *memory) reset() bool {
	size := m.image.size
	kept := size // and what it has grown by is forgotten
	if m.account.roomy() {
		kept = min(m.peak, size+grownMost)
	}
	switch {
	case !m.mapped:
		if len(m.room) > heapMost {
			return false
		}
		m.image.restore(m.room[:m.peak], 0)
	case forget(m.room[kept:m.paid]) != nil:
		return false
	case !m.restore(0, size) || !m.restore(size, kept):
		if forget(m.room[:kept]) != nil {
			return false
		}
		if m.image.file == nil {
			m.image.lay(m.room, false)
		}
		kept = size
	}
	m.account.give(m.paid - kept)
	m.paid = kept
	m.peak, m.refused = size, nil
	m.anew = m.size != size
	return true
}

// writtenMost is how many pages of the system are put back one by one, which
// keeps them: laying out a page anew costs a fault at its next use. It bounds
// what a warm instance holds too.
const writtenMost = 1024

// lookMost is how large a memory may be that is looked through for them.
const lookMost = 64 << 20

// grownMost is how much of what a memory has grown by is kept, and paid for, for
// the next call to grow into. A running call cannot give it up, which is why a
// host that is more than half full keeps none.
const grownMost = 4 << 20

// restore copies the image over a part of the memory: all of it if it is small,
// else the pages that were written to. It is false if the system cannot tell
// which, or if they are too many.
func (m *memory) restore(from, to uint64) bool {
	if to-from <= copyMost {
		m.image.restore(m.room[from:to], from)
		return true
	}
	if to-from > lookMost {
		return false
	}
	written := m.account.pool.written
	var found [writtenMost]uint64
	pages, ok := written.pages(m.room[from:to], found[:0])
	for _, at := range pages {
		m.image.restore(m.room[from+at:][:written.size], from+at)
	}
	return ok
}

// Free implements experimental.LinearMemory. It does nothing: wazero calls it
// when it closes the instance, and somebody may still look at the memory.
func (m *memory) Free() {}

// release gives the memory back. Nothing may look at it from then on.
//
// The system takes a while to take back what was written to, some milliseconds
// for 64 MiB. A call does not wait for that; one that needs the memory does.
func (m *memory) release() {
	room, paid, mapped := m.room, m.paid, m.mapped
	m.room, m.size, m.paid, m.mapped = nil, 0, 0, false

	free := func() {
		if mapped {
			unreserve(room)
		}
		m.account.give(paid + m.account.beside)
	}
	if mapped && paid > freeAtOnce {
		m.account.pool.freeLater(free)
	} else {
		free()
	}
}

// freeAtOnce is how much memory a call gives back itself.
const freeAtOnce = 4 << 20
