package complexity

import "github.com/toolhost/toolhost/internal/wasmbin"

// effects has by how much the operand stack is higher after an operation without
// control flow: of one byte, after 0xfc, and after 0xfd. Those that depend on a
// type are not in it. plain has the operations of one byte of which nothing else is
// counted but the addresses that they check.
var (
	effects = stackEffects()
	plain   = plainOps()
)

func plainOps() (plain [256]bool) {
	for op := wasmbin.OpDrop; op <= 0xd2; op++ {
		plain[op] = op != wasmbin.OpTryTable && (op < wasmbin.OpLocalGet || op > wasmbin.OpLocalTee) && !becomesMany(op)
	}
	return plain
}

func stackEffects() (e [3][256]int8) {
	for _, r := range []struct {
		page        int
		n           int8
		first, last int
	}{
		{0, -1, 0x1a, 0x1a}, {0, -2, 0x1b, 0x1c}, // drop, select
		{0, 1, 0x20, 0x20}, {0, -1, 0x21, 0x21}, {0, 1, 0x23, 0x23}, {0, -1, 0x24, 0x24}, // locals and globals
		{0, -2, 0x26, 0x26}, {0, -2, 0x36, 0x3e}, // table.set, stores
		{0, 1, 0x3f, 0x3f}, {0, 1, 0x41, 0x44}, // memory.size, constants
		{0, -1, 0x46, 0x4f}, {0, -1, 0x51, 0x66}, // comparisons, but for eqz
		{0, -1, 0x6a, 0x78}, {0, -1, 0x7c, 0x8a}, {0, -1, 0x92, 0x98}, {0, -1, 0xa0, 0xa6}, // operators of two numbers
		{0, 1, 0xd0, 0xd0}, {0, 1, 0xd2, 0xd2}, // ref.null, ref.func

		{1, -3, 0x08, 0x08}, {1, -3, 0x0a, 0x0c}, {1, -3, 0x0e, 0x0e}, {1, -3, 0x11, 0x11}, // init, copy and fill
		{1, -1, 0x0f, 0x0f}, {1, 1, 0x10, 0x10}, // table.grow, table.size

		{2, -1, 0x00, 0xff},                                                             // vectors: operators of two, but for what follows
		{2, 0, 0x00, 0x0a}, {2, -2, 0x0b, 0x0b}, {2, 1, 0x0c, 0x0c}, {2, 0, 0x0f, 0x14}, // loads, a store, const, splats
		{2, 0, 0x15, 0x16}, {2, 0, 0x18, 0x19}, {2, 0, 0x1b, 0x1b}, {2, 0, 0x1d, 0x1d}, {2, 0, 0x1f, 0x1f}, {2, 0, 0x21, 0x21}, // extract_lane
		{2, 0, 0x4d, 0x4d}, {2, -2, 0x52, 0x52}, {2, 0, 0x53, 0x53}, {2, -2, 0x58, 0x5b}, {2, 0, 0x5c, 0x64}, // not, bitselect, any_true, lanes
		{2, 0, 0x67, 0x6a}, {2, 0, 0x74, 0x75}, {2, 0, 0x7a, 0x7a}, {2, 0, 0x7c, 0x81}, {2, 0, 0x83, 0x84}, {2, 0, 0x87, 0x8a},
		{2, 0, 0x94, 0x94}, {2, 0, 0xa0, 0xa1}, {2, 0, 0xa3, 0xa4}, {2, 0, 0xa7, 0xaa}, {2, 0, 0xc0, 0xc1}, {2, 0, 0xc3, 0xc4},
		{2, 0, 0xc7, 0xca}, {2, 0, 0xe0, 0xe1}, {2, 0, 0xe3, 0xe3}, {2, 0, 0xec, 0xed}, {2, 0, 0xef, 0xef}, {2, 0, 0xf8, 0xff},
	} {
		for op := r.first; op <= r.last; op++ {
			e[r.page][op] = r.n
		}
	}
	return e
}

// effect is that of an operation without control flow.
func effect(op wasmbin.Op) int {
	switch {
	case op < 0x100:
		return int(effects[0][op])
	case op < 0xfd00:
		return int(effects[1][op&0xff])
	}
	return int(effects[2][op&0xff])
}

// accesses reports whether an operation checks an address.
func accesses(op wasmbin.Op) bool {
	return op >= wasmbin.OpI32Load && op <= wasmbin.OpI64Store32 || op >= 0xfd00 && (op <= 0xfd0b || op >= 0xfd54 && op <= 0xfd5d)
}

// becomesMany reports whether an operation becomes many instructions, with ways
// out of the function or into the host.
func becomesMany(op wasmbin.Op) bool {
	switch {
	case op >= 0x6d && op <= 0x70, op >= 0x7f && op <= 0x82: // divisions and remainders
		return true
	case op >= 0xa8 && op <= 0xb1, op >= 0xfc00 && op < 0xfd00: // floats to integers; memory and tables
		return true
	}
	return op == wasmbin.OpMemoryGrow || op == wasmbin.OpTableGet || op == wasmbin.OpTableSet
}
