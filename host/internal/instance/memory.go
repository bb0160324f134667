package instance

import (
	"fmt"

	"github.com/tetratelabs/wazero/experimental"

	"github.com/toolhost/toolhost/internal/checkpoint"
)

const (
	// heapMost is the largest memory on Go's heap that is kept for the next call.
	heapMost = 1 << 20
	// writtenMost is the maximum number of system pages that are reset one by one. That
	// keeps them mapped: a newly mapped page costs a fault at its next use. It also
	// limits what a warm instance holds.
	writtenMost = 1024
	// scanLeast is the smallest part of a memory that is scanned for written pages:
	// copying a smaller part takes no longer than the query.
	scanLeast = 64 << 10
	// scanMost is the largest part that is scanned.
	scanMost = 64 << 20
	// grownMost is how much of a memory's growth is kept, and paid for, for the
	// next call. A running call cannot give it up, so a host that is more than
	// half full keeps none.
	grownMost = 4 << 20
	// freeAtOnce is the most memory that a call frees itself. Freeing 64 MiB of written
	// memory takes the system some milliseconds, so another goroutine does that.
	freeAtOnce = 4 << 20
)

// Memory is the linear memory of one instance. It refuses to grow beyond the
// call's limit, which the guest sees as -1 from memory.grow. If the host has no
// memory left, it ends the call instead: a guest that continued would behave
// differently depending on other calls.
type Memory struct {
	payer Payer  // payer of the current call; the ledger's while the instance is warm
	image *Image // initial content
	limit uint64 // limit of the call
	most  uint64 // limit declared by the module, if lower

	room   []byte // reserved or allocated; its length limits growth
	mapped bool   // whether room is reserved
	size   uint64 // current size
	paid   uint64 // bytes that may be backed by memory: up to peak, or more after an earlier call
	anew   bool   // the next Reallocate resets the memory to the size of its image

	// Peak is the largest size during this call, in bytes. Refused is the reason why
	// growth was refused, or nil. It is the likely cause of the next failure.
	Peak    uint64
	Refused error
}

// Allocate implements experimental.MemoryAllocator. A module has at most one
// memory, and the caller has checked that its minimum is within the limit.
func (m *Memory) Allocate(_, _ uint64) experimental.LinearMemory { return m }

// NewMemory returns a memory with the content of an image. Its error matches ErrMemory.
func (p Payer) NewMemory(i *Image, limit, most uint64) (*Memory, error) {
	if err := p.Take(Linear, i.size+p.Overhead); err != nil {
		return nil, err
	}

	m := &Memory{payer: p, image: i, limit: limit, most: most, size: i.size, paid: i.size, Peak: i.size, anew: true}
	if !p.ledger.HeapOnly {
		room, err := reserve(max(min(limit, most), i.size))
		if err == nil && i.apply(room, true) {
			m.room, m.mapped = room, true
			return m, nil
		}
		if err == nil {
			unreserve(room)
		}
	}

	m.room = make([]byte, i.size)
	i.apply(m.room, false)
	return m, nil
}

// Reallocate implements experimental.LinearMemory.
func (m *Memory) Reallocate(size uint64) []byte {
	switch {
	case m.anew:
		m.size, m.anew = m.image.size, false
	case !m.grow(size):
		return nil
	}
	return m.room[:m.size:m.size]
}

func (m *Memory) grow(size uint64) bool {
	if size > m.limit {
		m.Refused = fmt.Errorf("%w: the plugin needs more than the %d bytes allowed", ErrMemory, m.limit)
		return false
	}
	if size > m.most {
		return false
	}

	if size > m.paid {
		if err := m.payer.Take(Linear, size-m.paid); err != nil {
			panic(&Stop{err})
		}
		m.paid = size
	}

	if size > uint64(len(m.room)) {
		room := make([]byte, min(m.limit, m.most, max(size, 2*uint64(len(m.room)))))
		copy(room, m.room[:m.size])
		m.room = room
	}
	m.size = size
	m.Peak = max(m.Peak, size)
	return true
}

// reset restores the memory to its image. It reports false if that is
// impossible. If the memory had grown, the instance still sees its old size:
// grow it by a page to shrink it.
func (m *Memory) reset() bool {
	size := m.image.size
	kept := size // by default the growth is forgotten
	if m.Peak > size && m.payer.ledger.roomy() {
		kept = min(m.Peak, size+grownMost)
	}

	switch {
	case !m.mapped:
		if len(m.room) > heapMost {
			return false
		}
		m.image.restore(m.room[:m.Peak], 0)
	case discard(m.room[kept:m.paid]) != nil:
		return false
	case !m.restore(0, size) || !m.restore(size, kept):
		if discard(m.room[:kept]) != nil {
			return false
		}
		if m.image.file == nil {
			m.image.apply(m.room, false)
		}
		kept = size
	}

	if m.paid > kept {
		m.payer.Give(Linear, m.paid-kept)
		m.paid = kept
	}
	m.Peak, m.Refused = size, nil
	m.anew = m.size != size
	return true
}

// restore copies the image over a part of the memory: all of a small part,
// otherwise only the written pages. It reports false if the system cannot
// report those, or if they are too many.
func (m *Memory) restore(from, to uint64) bool {
	if to-from <= scanLeast {
		m.image.restore(m.room[from:to], from)
		return true
	}
	if to-from > scanMost {
		return false
	}

	pagemap := m.payer.ledger.pagemap
	var found [writtenMost]uint64
	pages, ok := pagemap.pages(m.room[from:to], found[:0])
	for _, at := range pages {
		m.image.restore(m.room[from+at:][:pagemap.size], from+at)
	}
	return ok
}

// written returns the pages that may differ from the image, or nil if the system cannot
// report them: then any page may.
func (m *Memory) written() *checkpoint.Pages {
	if !m.mapped {
		return nil
	}
	pagemap := m.payer.ledger.pagemap
	at, ok := pagemap.pages(m.room[:m.size], make([]uint64, 0, m.size/pagemap.size))
	if !ok {
		return nil
	}
	return &checkpoint.Pages{At: at, Size: pagemap.size}
}

// lend transfers the cost of a memory from the ledger to a payer. It reports false if
// the payer's client would exceed its limit. The mutex of the ledger must be held.
func (m *Memory) lend(p Payer) bool {
	n := int64(m.paid + p.Overhead)
	if !p.client.room(n) {
		return false
	}
	p.client.add(n)
	m.payer = p
	return true
}

// reclaim transfers the cost back to the ledger. The mutex of the ledger must be held.
func (m *Memory) reclaim() {
	m.payer.client.add(-int64(m.paid + m.payer.Overhead))
	m.payer.client = nil
}

// Free implements experimental.LinearMemory. It does nothing: wazero calls it
// when it closes the instance, and the memory may still be read.
func (m *Memory) Free() {}

// Release frees the memory. Nothing may read it afterwards. The call does not
// wait for a large memory to be freed; a later call that needs the memory does.
func (m *Memory) Release() {
	room, paid, mapped := m.room, m.paid, m.mapped
	m.room, m.size, m.paid, m.mapped = nil, 0, 0, false

	free := func() {
		if mapped {
			unreserve(room)
		}
		m.payer.Give(Linear, paid+m.payer.Overhead)
	}
	if mapped && paid > freeAtOnce {
		m.payer.ledger.freeLater(free)
	} else {
		free()
	}
}
