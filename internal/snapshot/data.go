package snapshot

import "github.com/toolhost/toolhost/internal/wasmbin"

// maxImage bounds the image, in bytes. A module may ask for a byte of data at
// the end of 4 GiB; nobody has to lay out what lies before it.
const maxImage = 256 << 20

// moveData takes the active data segments out of a module and returns the
// memory they make, up to its last byte that is not zero. It leaves them where
// they are if one lies outside of the memory, which has to trap, or where it
// lies is computed, or the image were too large.
func moveData(m *wasmbin.Module) []byte {
	if len(m.Memories) == 0 || m.ImportCount(wasmbin.KindMemory) > 0 {
		return nil
	}
	size := uint64(m.Memories[0].Min) * wasmbin.PageSize
	var end uint64
	for _, d := range m.Data {
		if d.Mode != wasmbin.Active {
			continue // nobody can use it
		}
		at, ok := offset(d.Offset)
		last := uint64(at) + uint64(len(d.Init))
		if !ok || last > min(size, maxImage) {
			return nil
		}
		end = max(end, last)
	}
	image := make([]byte, end)
	for _, d := range m.Data {
		if d.Mode == wasmbin.Active {
			at, _ := offset(d.Offset)
			copy(image[at:], d.Init)
		}
	}
	m.Data, m.DataCount = nil, nil
	for end > 0 && image[end-1] == 0 {
		end--
	}
	return image[:end]
}

// offset is the value of an offset expression that is a single constant.
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
