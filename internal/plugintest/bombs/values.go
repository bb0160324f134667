package bombs

import "github.com/toolhost/toolhost/internal/wasmbin"

// values returns functions with many values that stay live across many blocks.
// Where branches meet, each of these values is a parameter of the block
// (findValue, Seal). The cost grows with the square of the number of parameters
// (passRedundantPhiElimination), and the register allocator lists everything
// that is live for each block (livenessAnalysis).
func values() []Bomb {
	return []Bomb{
		{"1,000 locals across ifs", "findValue and livenessAnalysis: blocks times locals, in time and memory", 20_000, func(n int) []byte {
			return function(wide, each(wide, func(i int) code { return seq(get(0), load(), set(i)) }), repeat(n, when()), sum(wide))
		}},
		{"1,000 locals across loops", "a parameter of each loop for each local", 2_000, func(n int) []byte {
			return function(wide, each(wide, func(i int) code { return seq(get(0), load(), set(i)) }), repeat(n, loop(i32(0), brIf(0))), sum(wide))
		}},
		{"1,000 locals across nested loops", "a round of passRedundantPhiElimination for each loop around", 250, func(n int) []byte {
			return function(wide, repeat(n, open(opLoop)), sum(wide), repeat(n, get(0), brIf(0), end()))
		}},
		{"1,000 locals set in ifs", "a parameter of each block for each local; its square", 2_000, func(n int) []byte {
			sets := each(wide, func(i int) code { return seq(get((i+1)%wide), set(i)) })
			return function(wide, repeat(n, when(sets)), sum(wide))
		}},
		{"locals set in an if", "one block with n parameters; square of n", 40_000, func(n int) []byte {
			return function(n, repeat(3, when(each(n, func(i int) code { return seq(get(0), load(), set(i)) })), sum(n)))
		}},
		{"locals swapped in a loop", "a loop with n parameters; square of n", 40_000, func(n int) []byte {
			return function(n, loop(each(n, func(i int) code { return seq(get((i+1)%n), set(i)) }), get(0), brIf(0)))
		}},
		{"locals read in a loop", "a loop with n parameters, all redundant; square of n", 40_000, func(n int) []byte {
			return function(n, loop(sum(n), get(0), brIf(0)))
		}},
		{"a local read along a chain", "findValue walks back to where it was set for each read; square of n", 60_000, func(n int) []byte {
			return function(2, i32(1), set(1), repeat(n, get(1), brIf(0)))
		}},
		{"globals read along a chain", "findValueInLinearPath walks back to the entry for each of 9,000 globals; n times that", 60_000, func(n int) []byte {
			m := plugin()
			m.addGlobals(9_000)
			m.add(m.addType(nil, nil), seq(repeat(n, i32(0), brIf(0)), each(9_000, func(i int) code { return seq(opX(wasmbin.OpGlobalGet, i), drop()) })), locals(1))
			return m.Encode()
		}},
		{"a local read at the end of a chain", "findValue walks back through 4,900 branches for each read; n times that", 100_000, func(n int) []byte {
			return function(2, i32(1), set(1), repeat(4_900, i32(0), brIf(0)), repeat(n, get(1), drop()))
		}},
		{"addresses across ifs", "knownSafeBounds: each of 5,000 ifs has a copy of all addresses checked before it; n times that", 200_000, func(n int) []byte {
			return function(1, each(n, func(i int) code { return seq(i32(4*i), load(), drop()) }), repeat(5_000, when()))
		}},
		{"values across a chain", "livenessAnalysis: n values in each of 10,000 blocks", 50_000, func(n int) []byte {
			return function(1, get(0), repeat(n, get(0), load()), repeat(4_900, i32(0), brIf(0)), repeat(n-1, op(wasmbin.OpI32Add)), store())
		}},
		{"values across ifs", "the same, where branches meet", 50_000, func(n int) []byte {
			return function(1, get(0), repeat(n, get(0), load()), repeat(5_000, when()), repeat(n-1, op(wasmbin.OpI32Add)), store())
		}},
		{"values across loops", "the same, around loops", 50_000, func(n int) []byte {
			return function(1, get(0), repeat(n, get(0), load()), repeat(2_000, loop(i32(0), brIf(0))), repeat(n-1, op(wasmbin.OpI32Add)), store())
		}},
		{"values across calls", "each is spilled and live in each of n calls: linear", 700_000, func(n int) []byte {
			m := plugin()
			t := m.addType(nil, nil)
			f := m.add(t, nil)
			m.add(t, seq(get(0), repeat(n, get(0), load()), repeat(n, call(f)), repeat(n-1, op(wasmbin.OpI32Add)), store()), locals(1))
			return m.Encode()
		}},
	}
}

// sum adds up n locals and stores the sum, because code whose result is dropped
// is not compiled.
func sum(n int) code {
	return seq(get(0), get(0), each(n-1, func(i int) code { return seq(get(i+1), op(wasmbin.OpI32Add)) }), store())
}

// addGlobals adds n mutable globals of type i32.
func (m module) addGlobals(n int) {
	for range n {
		m.Globals = append(m.Globals, wasmbin.Global{
			GlobalType: wasmbin.GlobalType{Type: wasmbin.I32, Mutable: true},
			Init:       seq(i32(0), end()),
		})
	}
}
