package complexity

import "github.com/toolhost/toolhost/internal/wasmbin"

// effects has for each operation of one byte by how much the operand stack is
// higher after it. Those that depend on a type are not in it.
var effects = oneByteEffects()

// addresses has for each operation of one byte how many addresses it checks, and
// plain whether it does nothing else that is counted.
var addresses, plain = oneBytePlain()

func oneBytePlain() (checks [256]uint8, plain [256]bool) {
	for op := range 0x100 {
		if op >= int(wasmbin.OpI32Load) && op <= int(wasmbin.OpI64Store32) {
			checks[op] = 1
		}
		plain[op] = op >= int(wasmbin.OpDrop) && op <= 0xd2 && op != int(wasmbin.OpTryTable) &&
			(op < int(wasmbin.OpLocalGet) || op > int(wasmbin.OpLocalTee)) && !becomesMany(wasmbin.Op(op))
	}
	return checks, plain
}

func oneByteEffects() (e [256]int8) {
	set := func(n int8, first, last int) {
		for op := first; op <= last; op++ {
			e[op] = n
		}
	}

	set(-1, 0x1a, 0x1a) // drop
	set(-2, 0x1b, 0x1c) // select
	set(1, 0x20, 0x20)  // local.get
	set(-1, 0x21, 0x21) // local.set
	set(1, 0x23, 0x23)  // global.get
	set(-1, 0x24, 0x24) // global.set
	set(-2, 0x26, 0x26) // table.set
	set(-2, 0x36, 0x3e) // stores
	set(1, 0x3f, 0x3f)  // memory.size
	set(1, 0x41, 0x44)  // constants
	set(-1, 0x46, 0x4f) // comparisons, but for eqz
	set(-1, 0x51, 0x66)
	set(-1, 0x6a, 0x78) // operators of two integers
	set(-1, 0x7c, 0x8a)
	set(-1, 0x92, 0x98) // and of two floats
	set(-1, 0xa0, 0xa6)
	set(1, 0xd0, 0xd0) // ref.null
	set(1, 0xd2, 0xd2) // ref.func

	return e
}

// effect is by how much the operand stack is higher after an operation without
// control flow.
func effect(op wasmbin.Op) int {
	switch {
	case op < 0x100:
		return int(effects[op])
	case op < 0xfd00:
		return bulkEffect(op)
	}
	return vectorEffect(op & 0xff)
}

func bulkEffect(op wasmbin.Op) int {
	switch op {
	case wasmbin.OpMemoryInit, wasmbin.OpMemoryCopy, wasmbin.OpMemoryFill, wasmbin.OpTableInit, wasmbin.OpTableCopy, wasmbin.OpTableFill:
		return -3
	case wasmbin.OpTableGrow:
		return -1
	case wasmbin.OpTableSize:
		return 1
	}
	return 0
}

// vectorEffect is that of 0xfd followed by n.
func vectorEffect(n wasmbin.Op) int {
	switch {
	case n == 0x0c: // v128.const
		return 1
	case n == 0x0b, n >= 0x58 && n <= 0x5b: // stores
		return -2
	case n == 0x52: // bitselect
		return -2
	case n <= 0x0a, n >= 0x0f && n <= 0x14, n == 0x5c, n == 0x5d: // loads, splats
		return 0
	case n >= 0x15 && n <= 0x22:
		return laneEffect(n)
	case unaryVector(n):
		return 0
	}

	return -1
}

// laneEffect is that of extract_lane, or of replace_lane, which takes a value.
func laneEffect(n wasmbin.Op) int {
	switch n {
	case 0x17, 0x1a, 0x1c, 0x1e, 0x20, 0x22:
		return -1
	}
	return 0
}

// unaryVector reports whether a vector instruction takes one operand.
func unaryVector(n wasmbin.Op) bool {
	switch {
	case n == 0x4d, n == 0x53, n == 0x5e, n == 0x5f, // not, any_true, demote, promote
		n >= 0x60 && n <= 0x64, n >= 0x67 && n <= 0x6a, n == 0x74, n == 0x75, n == 0x7a, n >= 0x7c && n <= 0x7f,
		n >= 0x80 && n <= 0x81, n == 0x83, n == 0x84, n >= 0x87 && n <= 0x8a, n == 0x94,
		n == 0xa0, n == 0xa1, n == 0xa3, n == 0xa4, n >= 0xa7 && n <= 0xaa,
		n == 0xc0, n == 0xc1, n == 0xc3, n == 0xc4, n >= 0xc7 && n <= 0xca,
		n == 0xe0, n == 0xe1, n == 0xe3, n == 0xec, n == 0xed, n == 0xef, n >= 0xf8:
		return true
	}
	return false
}
