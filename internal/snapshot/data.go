package snapshot

import (
	"bytes"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Bounds of the image, in bytes: a module may have a byte of data at each end of 4 GiB.
// An image larger than smallImage is at most sparse times the module's data.
const (
	maxImage   = 64 << 20
	smallImage = 1 << 20
	sparse     = 8
)

// area is the part of a memory that the active data segments of a module write
// to.
type area struct{ from, end uint64 }

// dataArea returns the area, or why the data has to stay in the module: a segment is
// outside of the memory, which must trap, its offset is computed, or the data is spread
// too far.
func dataArea(m *wasmbin.Module) (area, string) {
	size := uint64(m.Memories[0].Min) * wasmbin.PageSize
	a, total := area{from: size}, uint64(0)
	for _, d := range m.Data {
		if d.Mode != wasmbin.Active {
			continue // no code can use it
		}
		at, ok := offset(d.Offset)
		if !ok {
			return area{}, "it computes where its data goes"
		}

		n := uint64(len(d.Init))
		if uint64(at)+n > size {
			return area{}, "its data does not fit into its memory"
		}
		if n > 0 {
			a.from, a.end = min(a.from, uint64(at)), max(a.end, uint64(at)+n)
			total += n
		}
	}

	if total == 0 {
		return area{}, ""
	}
	if span := a.end - a.from; span > maxImage || span > max(smallImage, sparse*total) {
		return area{}, "its data is spread too far"
	}
	return a, ""
}

// moveData takes the active data segments out of a module and returns the area
// of the memory they make, from its first byte that is not zero to the last.
func moveData(m *wasmbin.Module, a area) (image []byte, from uint64) {
	image = make([]byte, a.end-a.from)
	for _, d := range m.Data {
		if d.Mode == wasmbin.Active && len(d.Init) > 0 {
			at, _ := offset(d.Offset)
			copy(image[uint64(at)-a.from:], d.Init)
		}
	}

	m.Data, m.DataCount = nil, nil
	end := bytes.TrimRight(image, "\x00")
	image = bytes.TrimLeft(end, "\x00")
	if len(image) == 0 {
		return nil, 0
	}
	return image, a.from + uint64(len(end)-len(image))
}

// offset returns the value of an offset expression that is a single constant.
func offset(expr []byte) (uint32, bool) {
	var (
		rd  wasmbin.Reader
		in  wasmbin.Instr
		ops int
		at  uint32
	)

	rd.Reset(&wasmbin.Code{Body: expr}, 0)
	for rd.Next(&in) {
		switch ops++; {
		case ops == 1 && in.Op == wasmbin.OpI32Const:
			at = uint32(in.Const)
		case ops == 2 && in.Op == wasmbin.OpEnd:
		default:
			return 0, false
		}
	}

	return at, ops == 2 && rd.Err() == nil
}
