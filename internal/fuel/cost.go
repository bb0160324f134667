package fuel

import "github.com/toolhost/toolhost/internal/wasmbin"

// CostVersion is the version of the prices below. The fuel of a call that
// returns depends only on the module, its input and this version.
const CostVersion = 1

// One unit of fuel is one executed WebAssembly operator: well under a nanosecond
// in a tight loop, a few where memory is slow. These cost something else:
//
//	block, loop, end, else, nop, drop, return     0
//	call of an imported function                  HostCallCost more
//	memory.grow, table.grow                       GrowCost, and by size if they succeed
//	ref.func                                      RefFuncCost
//
// and by size, when they did not trap:
//
//	memory.fill, memory.copy, memory.init         1 per 64 bytes
//	table.fill, table.copy, table.init            1 per 8 entries
//	memory.grow                                   1024 per page, which is 1 per 64 bytes
//	table.grow                                    1 per 8 entries
//
// An operator that traps costs its price. The host charges for the work of host
// functions.
const (
	// HostCallCost is the base price of a call that leaves the guest.
	HostCallCost = 100
	// GrowCost is the base price of asking for memory or table entries.
	GrowCost = 100
	// RefFuncCost is the price of a function reference. References are now made
	// together with the instance, see references, but the price is still that of making
	// one.
	RefFuncCost = 20

	bytesShift = 6  // log2 of the bytes per unit
	entryShift = 3  // log2 of the table entries per unit
	pageShift  = 10 // log2 of the units per page
)

// price is what executing an operator costs, apart from its size. Calls of
// imported functions are priced where they are seen.
func price(op wasmbin.Op) int64 {
	switch op {
	case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpEnd, wasmbin.OpElse, wasmbin.OpNop, wasmbin.OpDrop, wasmbin.OpReturn:
		return 0
	case wasmbin.OpMemoryGrow, wasmbin.OpTableGrow:
		return GrowCost
	case wasmbin.OpRefFunc:
		return RefFuncCost
	}
	return 1
}

// size says how an operator is charged by the operand on top of the stack.
type size struct {
	left, right int64 // units = operand << left >> right
	grows       bool  // charged only if its result is not -1
}

func sizeOf(op wasmbin.Op) (size, bool) {
	switch op {
	case wasmbin.OpMemoryFill, wasmbin.OpMemoryCopy, wasmbin.OpMemoryInit:
		return size{right: bytesShift}, true
	case wasmbin.OpTableFill, wasmbin.OpTableCopy, wasmbin.OpTableInit:
		return size{right: entryShift}, true
	case wasmbin.OpMemoryGrow:
		return size{left: pageShift, grows: true}, true
	case wasmbin.OpTableGrow:
		return size{right: entryShift, grows: true}, true
	}
	return size{}, false
}
