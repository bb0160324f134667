package compiler

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/snapshot"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// rewritten is what comes of the modules in bench/workloads, by the versions of
// what rewrites them.
const rewritten = "rewriter 9, state 2: e16717797ae29a0d"

// TestVersionsNameWhatComesOfAModule: entries of the cache are found by these
// versions. Who changes what comes of a module changes a version, and puts the
// new line here.
func TestVersionsNameWhatComesOfAModule(t *testing.T) {
	files, err := filepath.Glob("../../../bench/workloads/*.wasm")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	all := sha256.New()
	for _, name := range files {
		wasm, err := os.ReadFile(name)
		require.NoError(t, err)
		p, _, err := Rewrite(wasm)
		require.NoError(t, err, name)
		_, _ = all.Write(p.Encode())
	}
	got := fmt.Sprintf("rewriter %d, state %d: %s", fuel.RewriterVersion, snapshot.Version, hex.EncodeToString(all.Sum(nil)[:8]))
	require.Equal(t, rewritten, got, "a version has to change with it: fuel.RewriterVersion, or snapshot.Version")
}

// TestProgramFile: a written file can be read again, and a truncated one cannot.
func TestProgramFile(t *testing.T) {
	for _, p := range []*Program{
		{},
		{snapshot.Program{Wasm: []byte("wasm")}, 0},
		{snapshot.Program{Wasm: []byte("wasm"), Image: []byte("image"), Start: true, Globals: 3, Why: "it \"uses\" table.set"}, 1 << 40},
	} {
		data := p.Encode()
		got := Decode(data)
		require.NotNil(t, got)
		require.Equal(t, string(p.Wasm), string(got.Wasm))
		require.Equal(t, p.Image, got.Image)
		got.Wasm = p.Wasm
		require.Equal(t, p, got)
		for n := range data {
			require.Nil(t, Decode(data[:n]), "cut off at %d", n)
		}
		require.Nil(t, Decode(append(data, 0)))
	}
}

// FuzzProgramFile: arbitrary bytes are either rejected or decode to a valid program.
func FuzzProgramFile(f *testing.F) {
	f.Add((&Program{snapshot.Program{Wasm: []byte("wasm"), Image: []byte("image")}, 7}).Encode())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		if p := Decode(data); p != nil {
			require.NotNil(t, Decode(p.Encode()))
		}
	})
}

// TestOutline: an outline has everything of a module but its bodies, and one of
// its own for each module.
func TestOutline(t *testing.T) {
	module := func(body ...byte) *wasmbin.Module {
		return &wasmbin.Module{
			Types: []wasmbin.FuncType{{}}, Functions: []uint32{0, 0},
			Codes:    []wasmbin.Code{{Body: append(body, byte(wasmbin.OpEnd))}, {Body: []byte{byte(wasmbin.OpEnd)}}},
			Memories: []wasmbin.Limits{{Min: 1}},
			Data:     []wasmbin.Data{{Mode: wasmbin.Passive, Init: []byte("x")}},
			Exports:  []wasmbin.Export{{Name: "f"}},
			Customs:  []wasmbin.Custom{wasmbin.NewCustom("other", []byte("x")), wasmbin.NewCustom("name", []byte{0, 2, 1, 'm'})},
		}
	}
	outline := func(m *wasmbin.Module) []byte { return Outline(m, m.Encode()) }
	a := outline(module(byte(wasmbin.OpNop)))
	require.NotEqual(t, a, outline(module(byte(wasmbin.OpNop), byte(wasmbin.OpNop))))

	whole, err := wasmbin.Parse(module().Encode())
	require.NoError(t, err)
	got, err := wasmbin.Parse(a)
	require.NoError(t, err)
	for _, c := range got.Codes {
		require.Equal(t, []byte{byte(wasmbin.OpUnreachable), byte(wasmbin.OpEnd)}, c.Body)
	}
	names, ok := got.Custom("name")
	require.True(t, ok)
	require.Equal(t, []byte{0, 2, 1, 'm'}, names)
	_, ok = got.Custom("other")
	require.False(t, ok)
	got.Codes, got.Customs, whole.Codes, whole.Customs = nil, nil, nil, nil
	require.Equal(t, whole, got)
}
