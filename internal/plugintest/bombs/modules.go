package bombs

import (
	"strconv"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// straight returns functions without branches.
func straight() []Bomb {
	return []Bomb{
		{"additions", "one block of n values: linear", 2_000_000, func(n int) []byte {
			return function(1, get(0), get(0), repeat(n, get(0), op(wasmbin.OpI32Add)), store())
		}},
		{"deep stack", "n values live at once: linear, and a frame of 8n bytes", 1_000_000, func(n int) []byte {
			return function(1, get(0), repeat(n, get(0), load()), repeat(n-1, op(wasmbin.OpI32Add)), store())
		}},
		{"selects", "a chain of n selects: linear", 1_000_000, func(n int) []byte {
			return function(1, get(0), get(0), repeat(n, get(0), get(0), op(wasmbin.OpSelect)), store())
		}},
		{"divisions", "checks and fixed registers for each: linear, 3 kilobytes of memory each", 1_200_000, func(n int) []byte {
			return function(1, get(0), get(0), repeat(n, get(0), code{0x6e}), store()) // i32.div_u
		}},
		{"stores", "a check of the bounds for each: linear", 2_000_000, func(n int) []byte {
			return function(1, repeat(n, get(0), get(0), store()))
		}},
		{"vectors", "n vectors live at once: linear", 700_000, func(n int) []byte {
			splat, add := code{0xfd, 0x11}, code{0xfd, 0xae, 0x01} // i32x4.splat, i32x4.add
			return function(1, get(0), repeat(n, get(0), load(), splat), repeat(n-1, add), code{0xfd, 0x1b, 0}, store())
		}},
		{"truncations", "checks for each: linear", 700_000, func(n int) []byte {
			return function(1, repeat(n, get(0), code{0xb2}, code{0xa8}, set(0))) // f32.convert_i32_s, i32.trunc_f32_s
		}},
		{"saturations", "branches for each: linear", 700_000, func(n int) []byte {
			return function(1, repeat(n, get(0), code{0xb3}, code{0xfc, 0x01}, set(0)), get(0), get(0), store()) // f32.convert_i32_u, i32.trunc_sat_f32_u
		}},
		{"memory.grow", "a call into the host for each: linear", 100_000, func(n int) []byte {
			return function(1, repeat(n, get(0), code{0x40, 0}, set(0)))
		}},
		{"table.get", "checks for each: linear", 1_000_000, func(n int) []byte {
			m := plugin()
			m.addTable()
			m.add(m.addType(nil, nil), repeat(n, get(0), code{0x25, 0}, drop()), locals(1))
			return m.Encode()
		}},
		{"calls", "a call and its reloads each: linear", 2_000_000, func(n int) []byte {
			m := plugin()
			t := m.addType(nil, nil)
			m.add(t, repeat(n, call(m.add(t, nil))))
			return m.Encode()
		}},
	}
}

// modules returns modules with a lot of something that the compiler walks
// through for each function or each call.
func modules() []Bomb {
	return []Bomb{
		{"calls among globals", "reloadAfterCall loads all 9,000 mutable globals after each call; n times that", 5_000, func(n int) []byte {
			m := plugin()
			m.addGlobals(9_000)
			t := m.addType(nil, nil)
			m.add(t, repeat(n, call(m.add(t, nil))))
			return m.Encode()
		}},
		{"functions among globals", "declareNecessaryVariables: 9,000 variables for each function; n times that", 200_000, func(n int) []byte {
			m := plugin()
			m.addGlobals(9_000)
			return m.functions(n, m.addType(nil, nil), nil)
		}},
		{"functions among types", "ssa.builder.Init goes through all types for each function; n by n", 30_000, func(n int) []byte {
			m := plugin()
			for range n {
				m.addType(nil, nil)
			}
			return m.functions(n, len(m.Types)-1, nil)
		}},
		{"functions after a large one", "buildSparseTable goes through the largest table made before for each function; n times that", 400_000, func(n int) []byte {
			m := plugin()
			t := m.addType(nil, nil)
			for range 8 { // one for each worker
				m.add(t, repeat(7_000, block(i32(0), brIf(0))))
			}
			return m.functions(n, t, nil)
		}},
		{"functions with locals", "decoding lists all 50,000 locals of each function, 8 bytes each, for 7 bytes", 10_000, func(n int) []byte {
			m := plugin()
			return m.functions(n, m.addType(nil, nil), nil, locals(49_000))
		}},
		{"functions with parameters", "a prologue for 1,000 parameters in each function, for 5 bytes", 20_000, func(n int) []byte {
			m := plugin()
			return m.functions(n, m.addType(ints(wide), nil), nil)
		}},
		{"functions with results", "1,000 results for each function, for 5 bytes", 20_000, func(n int) []byte {
			m := plugin()
			t := m.addType(nil, ints(wide))
			f := m.add(t, repeat(wide, i32(0)))
			return m.functions(n, t, call(f))
		}},
		{"functions", "a million functions that do nothing: linear", 900_000, func(n int) []byte {
			m := plugin()
			return m.functions(n, m.addType(nil, nil), nil)
		}},
		{"types", "compileEntryPreambles makes code for each type: linear", 900_000, func(n int) []byte {
			m := plugin()
			for range n {
				m.addType(nil, nil)
			}
			return m.Encode()
		}},
		{"wide types", "the same, with 1,000 parameters and results", 4_000, func(n int) []byte {
			m := plugin()
			for range n {
				m.addType(ints(wide), ints(wide))
			}
			return m.Encode()
		}},
		{"exports", "a name and a wrapper for each: linear", 500_000, func(n int) []byte {
			m := plugin()
			f := m.add(m.addType(nil, nil), nil)
			for i := range n {
				m.Exports = append(m.Exports, wasmbin.Export{Name: strconv.Itoa(i), Index: uint32(f)})
			}
			return m.Encode()
		}},
	}
}

// addTable adds a table with one entry.
func (m module) addTable() {
	m.Tables = []wasmbin.Table{{TableType: wasmbin.TableType{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: 1}}}}
}

// functions adds n copies of a function, and encodes the module.
func (m module) functions(n, t int, body code, locals ...wasmbin.LocalGroup) []byte {
	for range n {
		m.add(t, body, locals...)
	}
	return m.Encode()
}
