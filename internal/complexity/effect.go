package complexity

import "github.com/toolhost/toolhost/internal/wasmbin"

// By how much the operand stack is higher after an operation, and three more: of
// one byte, after 0xfc, and after 0xfd. Operations with control flow and those that
// depend on a type are three.
const (
	oneByteEffects = "" +
		"3333333333333333" + // 00
		"3333333333211333" + // 10
		"4234231333333333" + // 20
		"3333331111111114" + // 30
		"3444432222222222" + // 40
		"3222222222222222" + // 50
		"2222222333222222" + // 60
		"2222222223332222" + // 70
		"2222222222233333" + // 80
		"3322222223333333" + // 90
		"2222222333333333" + // a0
		"3333333333333333" + // b0
		"3333333333333333" + // c0
		"4343333333333333" + // d0
		"3333333333333333" + // e0
		"3333333333333333" // f0
	miscEffects = "" +
		"3333333303000302" + // 00
		"4033333333333333" // 10
	vectorEffects = "" +
		"3333333333314223" + // 00
		"3333333233232323" + // 10
		"2322222222222222" + // 20
		"2222222222222222" + // 30
		"2222222222222322" + // 40
		"2213222211113333" + // 50
		"3333322333322222" + // 60
		"2222332222323333" + // 70
		"3323322333322222" + // 80
		"2222322222222222" + // 90
		"3323322333322222" + // a0
		"2222222222222222" + // b0
		"3323322333322222" + // c0
		"2222222222222222" + // d0
		"3323222222223323" + // e0
		"2222222233333333" // f0
)

// effect is that of an operation without control flow.
func effect(op wasmbin.Op) int {
	effects := vectorEffects
	switch {
	case op < 0x100:
		effects = oneByteEffects
	case op < 0xfd00:
		effects = miscEffects
	}
	return int(effects[op&0xff]) - '3'
}

// plain has the operations of one byte of which nothing else is counted but the
// addresses that they check.
var plain = plainOps()

func plainOps() (plain [256]bool) {
	for op := wasmbin.OpDrop; op <= wasmbin.OpRefFunc; op++ {
		plain[op] = (op < wasmbin.OpLocalGet || op > wasmbin.OpLocalTee) && !becomesMany(op)
	}
	return plain
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
