package host

import "github.com/tetratelabs/wazero/experimental"

// memory is the linear memory of one instance. It refuses to grow beyond the
// limit of the call, which the guest sees as a memory.grow that answers -1.
type memory struct {
	limit   uint64
	buf     []byte
	peak    uint64
	refused bool // a growth was refused: what fails next is likely its fault
}

// Allocate implements experimental.MemoryAllocator. A module has one memory at
// most, and the caller has checked that its minimum is within the limit.
func (m *memory) Allocate(_, _ uint64) experimental.LinearMemory { return m }

// Reallocate implements experimental.LinearMemory.
func (m *memory) Reallocate(size uint64) []byte {
	if size > m.limit {
		m.refused = true
		return nil
	}
	if size > uint64(cap(m.buf)) {
		grown := make([]byte, size, min(m.limit, max(size, 2*uint64(cap(m.buf)))))
		copy(grown, m.buf)
		m.buf = grown
	}
	m.buf = m.buf[:size]
	m.peak = max(m.peak, size)
	return m.buf
}

// Free implements experimental.LinearMemory.
func (m *memory) Free() { m.buf = nil }
