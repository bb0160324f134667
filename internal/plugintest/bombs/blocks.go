package bombs

import "github.com/toolhost/toolhost/internal/wasmbin"

const (
	opDeadEnd = wasmbin.OpUnreachable
	opIf      = wasmbin.OpIf
	opBlock   = wasmbin.OpBlock
	opLoop    = wasmbin.OpLoop
)

// blocks returns functions with many blocks. The compiler walks up the
// dominator tree once for each edge (subPassLoopDetection) and once for each
// block (passBuildLoopNestingForest), so the cost of a deep tree grows with the
// square of the number of blocks. It also recurses into the tree (eulerTour).
func blocks() []Bomb {
	return []Bomb{
		{"loops", "empty loops in a row: the dominator tree is a chain; square of n", 60_000, func(n int) []byte {
			return function(1, repeat(n, loop()))
		}},
		{"loops with a live local", "ssa.findValue recurses through all of them: stack overflow", 1_300_000, func(n int) []byte {
			return function(1, i32(1), set(0), repeat(n, loop()), get(0), drop())
		}},
		{"ifs with a live local", "subPassLoopDetection, square of n; findValue recurses", 60_000, func(n int) []byte {
			return function(2, i32(1), set(1), repeat(n, when()), get(1), drop())
		}},
		{"ifs with else", "subPassLoopDetection, square of n", 60_000, func(n int) []byte {
			return function(1, repeat(n, get(0), open(opIf), op(wasmbin.OpElse), end()))
		}},
		{"blocks with br_if", "subPassLoopDetection, square of n", 60_000, func(n int) []byte {
			return function(1, repeat(n, block(get(0), brIf(0))))
		}},
		{"loops with br_if", "subPassLoopDetection, square of n", 30_000, func(n int) []byte {
			return function(1, repeat(n, loop(get(0), brIf(0))))
		}},
		{"nested ifs", "depth of the dominator tree; square of n", 45_000, func(n int) []byte {
			return function(1, repeat(n, get(0), open(opIf)), repeat(n, end()))
		}},
		{"nested ifs with else", "a ladder: dominators meet far up; square of n", 45_000, func(n int) []byte {
			return function(1, repeat(n, get(0), open(opIf), op(wasmbin.OpElse)), repeat(n, end()))
		}},
		{"nested loops", "each level has all that is live around it; square of n", 45_000, func(n int) []byte {
			return function(1, repeat(n, open(opLoop)), repeat(n, get(0), brIf(0), end()))
		}},
		{"nested blocks", "calculateDominators walks from each end to where the branches come from; square of n", 45_000, func(n int) []byte {
			return function(1, repeat(n, open(opBlock)), each(n, func(i int) code { return seq(get(0), brIf(i)) }), repeat(n, end()))
		}},
		{"nested blocks, inside out", "as before, the innermost branch last", 45_000, func(n int) []byte {
			return function(1, repeat(n, open(opBlock)), each(n, func(i int) code { return seq(get(0), brIf(n-1-i)) }), repeat(n, end()))
		}},
		{"returns", "a block for each; square of n", 100_000, func(n int) []byte {
			return function(1, repeat(n, when(op(wasmbin.OpReturn))))
		}},
		{"traps", "a block for each; square of n", 100_000, func(n int) []byte {
			return function(1, repeat(n, when(op(opDeadEnd))))
		}},
		{"checks", "each memory.fill gets a loop and a branch by metering; square of n", 15_000, func(n int) []byte {
			return function(1, repeat(n, i32(0), i32(0), get(0), code{0xfc, 0x0b, 0}))
		}},
		{"indirect calls", "each call through a table gets a check by metering: a loop each; square of n", 20_000, func(n int) []byte {
			m := plugin()
			m.addTable()
			t := m.addType(nil, nil)
			indirect := wasmbin.AppendU32(wasmbin.AppendU32(op(wasmbin.OpCallIndirect), uint32(t)), 0)
			m.add(t, repeat(n, i32(0), indirect))
			return m.Encode()
		}},
	}
}

// branches returns functions in which many branches lead to one place, or to
// places that take many values.
func branches() []Bomb {
	return []Bomb{
		{"one label", "basicBlock.addPred and passLayoutBlocks look through all predecessors for each; square of n", 100_000, func(n int) []byte {
			return function(1, block(repeat(n, get(0), brIf(0))))
		}},
		{"one label of constants", "as before, with nothing to find on the way", 100_000, func(n int) []byte {
			return function(1, block(repeat(n, i32(0), brIf(0))))
		}},
		{"br_table to one label", "a predecessor for each entry; square of n", 400_000, func(n int) []byte {
			return function(1, block(brTable(make([]uint32, n)...)))
		}},
		{"br_tables to one label", "as before, 100 entries each", 5_000, func(n int) []byte {
			return function(1, block(repeat(n, block(brTable(append(make([]uint32, 99), 1)...)))))
		}},
		{"br_table to many labels", "a block and a trampoline for each", 45_000, func(n int) []byte {
			labels := make([]uint32, n)
			for i := range labels {
				labels[i] = uint32(i)
			}
			return function(1, repeat(n, open(opBlock)), brTable(labels...), repeat(n, end()))
		}},
		{"back edges", "predecessors of a loop's header; square of n", 60_000, func(n int) []byte {
			return function(1, loop(repeat(n, get(0), brIf(0))))
		}},
		{"wide blocks", "passRedundantPhiElimination: square of the 1,000 parameters for each block", 20_000, func(n int) []byte {
			return wideCode(n, typed(opBlock, wideType), end())
		}},
		{"wide loops", "the same for the head of a loop", 10_000, func(n int) []byte {
			return wideCode(n, typed(opLoop, wideType), end())
		}},
		{"wide br_if", "1,000 arguments for each branch, for 4 bytes", 20_000, func(n int) []byte {
			return wideCode(1, typed(opBlock, wideType), repeat(n, i32(0), brIf(0)), end())
		}},
		{"wide br_if of comparisons", "the same; metering makes an if with 1,000 values of each", 20_000, func(n int) []byte {
			return wideCode(1, typed(opBlock, wideType), repeat(n, i32(0), op(wasmbin.OpI32Eqz), brIf(0)), end())
		}},
		{"wide br_table", "1,000 arguments for each label, for one byte", 20_000, func(n int) []byte {
			return wideCode(1, typed(opBlock, wideType), brTable(make([]uint32, n)...), end())
		}},
		{"wide calls", "1,000 arguments and 1,000 results for each call, for 2 bytes", 5_000, func(n int) []byte {
			m := plugin()
			t := m.addType(ints(wide), ints(wide))
			f := m.add(t, each(wide, get))
			m.add(t, seq(each(wide, get), repeat(n, call(f))))
			return m.Encode()
		}},
	}
}

// wideType is the type of the blocks that wideCode uses.
const wideType = 8

// wideCode returns a plugin with a function that repeats a piece of code with
// 1,000 values on the stack.
func wideCode(n int, parts ...code) []byte {
	m := plugin()
	if t := m.addType(ints(wide), ints(wide)); t != wideType {
		panic("plugintest has other types")
	}
	m.add(wideType, seq(each(wide, get), repeat(n, parts...)))
	return m.Encode()
}
