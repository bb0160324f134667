package wasmbin

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// component is a component of all kinds of imports and exports, translated from text by
// wasmtime.
func component(t testing.TB) []byte {
	wasm, err := os.ReadFile("testdata/component.wasm")
	require.NoError(t, err)
	return wasm
}

func TestComponent(t *testing.T) {
	found, err := ParseComponent(component(t))
	require.NoError(t, err)
	require.Equal(t, &Component{
		Imports: []ComponentName{
			{"wasi:cli/environment@0.2.0", "instance"}, {"wasi:io/streams@0.2.0", "instance"},
			{"f", "func"}, {"t", "type"}, {"m", "core module"},
		},
		Exports: []ComponentName{{"wasi:cli/run@0.2.0", "instance"}, {"run", "func"}},
		Modules: 2,
	}, found, "what a component within it imports is its own affair")

	empty, err := ParseComponent([]byte(componentHeader))
	require.NoError(t, err)
	require.Equal(t, &Component{}, empty)
}

func TestComponentsThatAreMalformed(t *testing.T) {
	with := func(rest ...byte) []byte { return append([]byte(componentHeader), rest...) }
	for name, c := range map[string]struct {
		wasm []byte
		want string
	}{
		"a module":           {[]byte(header), "malformed wasm: not a component"},
		"nothing":            {nil, "malformed wasm: not a component"},
		"a cut off section":  {component(t)[:40], "malformed wasm: component section at byte 0x28: unexpected end in section size"},
		"an unknown section": {with(77, 0), "malformed wasm: component section at byte 0x8: unknown section id 77"},
		"too many imports":   {with(10, 5, 0xff, 0xff, 0xff, 0xff, 15), "malformed wasm: import section at byte 0xa: number of entries: count 4294967295 is more than the 0 bytes left can hold"},
		"a form of names":    {with(10, 6, 1, 9, 1, 'a', 1, 0), "malformed wasm: import section at byte 0xb: unknown form 9 of a name"},
		"a sort":             {with(10, 6, 1, 0, 1, 'a', 6, 0), "malformed wasm: import section at byte 0xe: unknown sort 6"},
		"a bound":            {with(10, 7, 1, 0, 1, 'a', 3, 2, 0), "malformed wasm: import section at byte 0xe: unknown bound 2"},
		"a name":             {with(11, 7, 1, 0, 1, 0xff, 1, 0, 0), "malformed wasm: export section at byte 0xc: name is not UTF-8"},
		"a type or none":     {with(11, 7, 1, 0, 1, 'a', 1, 0, 2), "malformed wasm: export section at byte 0x10: expected 0 or 1 before a type"},
		"more than it has":   {with(11, 8, 1, 0, 1, 'a', 1, 0, 0, 0), "malformed wasm: export section at byte 0x11: 1 bytes more than the section's content"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseComponent(c.wasm)
			require.EqualError(t, err, c.want)
			require.ErrorIs(t, err, ErrMalformed)
		})
	}

	// Cut off anywhere, it is malformed, or ends between two sections.
	for n := range len(component(t)) {
		if _, err := ParseComponent(component(t)[:n]); err != nil {
			require.ErrorIs(t, err, ErrMalformed)
		}
	}
}

func FuzzComponent(f *testing.F) {
	f.Add(component(f))
	f.Add([]byte(componentHeader))
	f.Fuzz(func(t *testing.T, wasm []byte) {
		found, err := ParseComponent(wasm)
		if err != nil {
			var at *Error
			require.ErrorAs(t, err, &at)
			return
		}
		require.LessOrEqual(t, 4*(len(found.Imports)+len(found.Exports))+2*found.Modules, len(wasm))
	})
}
