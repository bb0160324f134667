package complexity

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/plugintest/bombs"
	"github.com/toolhost/toolhost/internal/snapshot"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// prepared is what a host has compiled of a plugin, or why it is refused before.
func prepared(t testing.TB, wasm []byte) (*wasmbin.Module, error) {
	t.Helper()
	m, err := wasmbin.Parse(wasm)
	require.NoError(t, err)
	if _, err := fuel.Rewrite(m); err != nil {
		return nil, err
	}
	_, err = snapshot.Prepare(m)
	require.NoError(t, err)
	return m, nil
}

// The shapes that take a compiler some seconds at most at any size that a module
// may have.
var harmless = []string{"functions", "types", "exports", "br_table to many labels"}

// TestBombs: each bomb is refused at the size that hurts for what it has too much
// of, and a small one of the same shape is not.
func TestBombs(t *testing.T) {
	const (
		size     = "bytes of code"
		blocks   = "blocks"
		loops    = "loops within each other"
		depth    = "steps from its blocks to the entry"
		walk     = "steps from its locals to where they are set"
		live     = "values across its blocks"
		access   = "addresses across its blocks"
		phis     = "steps between values that meet"
		passed   = "calls, and values passed to blocks and functions"
		globals  = "loads of globals after calls"
		locals   = "locals"
		estimate = "milliseconds of compiling, by estimate,"
	)
	reasons := map[string]string{
		"loops": depth, "loops with a live local": "more than 200000 blocks", "ifs with a live local": depth, "ifs with else": depth,
		"blocks with br_if": depth, "loops with br_if": blocks, "nested ifs": depth, "nested ifs with else": depth,
		"nested loops": blocks, "nested blocks": depth, "nested blocks, inside out": depth, "returns": blocks, "traps": blocks,
		"checks": depth, "indirect calls": blocks,

		"1,000 locals across ifs": depth, "1,000 locals across loops": phis, "1,000 locals across nested loops": loops,
		"1,000 locals set in ifs": size, "locals set in an if": phis, "locals swapped in a loop": phis, "locals read in a loop": phis,
		"a local read along a chain": depth, "globals read along a chain": depth, "addresses across ifs": access,
		"a local read at the end of a chain": walk, "values across a chain": live, "values across ifs": live,
		"values across loops": live, "values across calls": size,

		"one label": blocks, "one label of constants": blocks, "br_table to one label": blocks, "br_tables to one label": blocks,
		"back edges": depth, "wide blocks": depth, "wide loops": depth, "wide br_if": depth, "wide br_if of comparisons": depth,
		"wide br_table": phis, "wide calls": passed,

		"additions": size, "deep stack": size, "selects": size, "divisions": size, "stores": size, "vectors": size,
		"truncations": size, "saturations": size, "memory.grow": size, "table.get": size, "calls": size,

		"calls among globals": globals, "functions among globals": estimate, "functions among types": estimate,
		"functions after a large one": estimate, "functions with locals": locals, "functions with parameters": estimate,
		"functions with results": estimate, "wide types": estimate,
	}
	for _, name := range harmless {
		reasons[name] = ""
	}
	seen := map[string]bool{}
	for _, b := range bombs.All() {
		require.False(t, seen[b.Name], "two bombs %q", b.Name)
		seen[b.Name] = true
		t.Run(b.Name, func(t *testing.T) {
			reason, ok := reasons[b.Name]
			require.True(t, ok, "no reason is known: add it to the table")

			m, err := prepared(t, b.Wasm())
			if err == nil {
				err = Check(m)
			}
			if reason == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, reason)
			}

			m, err = prepared(t, b.Make(20))
			require.NoError(t, err)
			require.NoError(t, Check(m))
		})
	}
	require.Len(t, seen, len(reasons))
}

// TestBounds: each bound is what refuses some shape, at a size that no other
// bound refuses.
func TestBounds(t *testing.T) {
	for what, b := range map[string]struct {
		bomb string
		n    int
	}{
		"steps between branches that meet":                              {"br_table to one label", 60_000},
		"steps from its locals to where they are set":                   {"a local read at the end of a chain", 5_000},
		"values where its branches meet":                                {"1,000 locals across ifs", 4_000},
		"values across its blocks":                                      {"values across a chain", 5_000},
		"addresses across its blocks":                                   {"addresses across ifs", 20_000},
		"divisions, conversions and instructions for memory and tables": {"divisions", 200_000},
	} {
		t.Run(what, func(t *testing.T) {
			m, err := prepared(t, find(t, b.bomb).Make(b.n))
			require.NoError(t, err)
			refused := (*Error)(nil)
			require.ErrorAs(t, Check(m), &refused)
			require.Equal(t, what, refused.What)
			require.Greater(t, refused.Found, refused.Most)
		})
	}
}

func find(t *testing.T, name string) bombs.Bomb {
	for _, b := range bombs.All() {
		if b.Name == name {
			return b
		}
	}
	require.Fail(t, "no bomb "+name)
	return bombs.Bomb{}
}

// TestError: a message names the function and the exceeded quantity and says what to
// do, and a hostile function name cannot forge it.
func TestError(t *testing.T) {
	e := &Error{Function: 7, Name: "main", What: "blocks", Found: 3, Most: 2}
	require.EqualError(t, e, `function 7 "main": too complex to compile: 3 blocks, at most 2: split the function, or build with optimization (-O2)`)
	require.ErrorIs(t, e, ErrTooComplex)

	e.Name = ""
	require.Contains(t, e.Error(), "function 7: too complex")

	e.Name = "\x1b[31m\n" + strings.Repeat("é", 1000)
	require.Contains(t, e.Error(), `function 7 "\x1b[31m\néé`)
	require.Less(t, len(e.Error()), 400)

	e = &Error{Module: true, What: "locals", Found: 3, Most: 2}
	require.EqualError(t, e, "too complex to compile: 3 locals in all functions together, at most 2: leave out what is not used, or split the plugin")
}

// TestNames: the index counts imports, and the name is that of the name section.
func TestNames(t *testing.T) {
	m, err := wasmbin.Parse(find(t, "loops").Make(30_000))
	require.NoError(t, err)
	f := uint32(m.Count(wasmbin.KindFunc) - 1)
	names := wasmbin.AppendU32([]byte{1, 8, 1}, f)
	m.Customs = append(m.Customs, wasmbin.NewCustom("name", append(names, 5, 'l', 'a', 'r', 'g', 'e')))
	refused := (*Error)(nil)
	require.ErrorAs(t, Check(m), &refused)
	require.Equal(t, "large", refused.Name)
	require.Equal(t, f, refused.Function)
}

// FuzzCheck looks for panics. What is refused is refused for a reason.
func FuzzCheck(f *testing.F) {
	for _, b := range bombs.All() {
		f.Add(b.Make(3))
	}
	f.Fuzz(func(t *testing.T, wasm []byte) {
		m, err := wasmbin.Parse(wasm)
		if err != nil {
			return
		}
		if err := Check(m); err != nil {
			refused := (*Error)(nil)
			require.True(t, errors.As(err, &refused))
			require.Greater(t, refused.Found, refused.Most)
		}
	})
}

// BenchmarkCheck measures the check next to the steps before it.
func BenchmarkCheck(b *testing.B) {
	wasm := goProgram(b)
	m, err := prepared(b, wasm)
	require.NoError(b, err)
	b.Run("rewrite", func(b *testing.B) {
		b.SetBytes(int64(len(wasm)))
		for b.Loop() {
			_, err := prepared(b, wasm)
			require.NoError(b, err)
		}
	})
	b.Run("check", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(wasm)))
		for b.Loop() {
			require.NoError(b, Check(m))
		}
	})
}
