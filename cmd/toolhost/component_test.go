package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// A component is shown, and refused with the way out.
func TestInspectComponent(t *testing.T) {
	const file = "../../internal/wasmbin/testdata/component.wasm"
	code, out, errs := toolhost(t.Context(), "inspect", file)
	require.Equal(t, 1, code)
	require.Contains(t, out, "\nimports\n  wasi:cli/environment@0.2.0 (instance)\n")
	require.Contains(t, out, "\nexports\n  wasi:cli/run@0.2.0 (instance)\n  run (func)\n")
	require.Contains(t, errs, "this is a component, and only core modules are accepted; build for wasm32-wasip1")
	require.Contains(t, errs, "\ntoolhost: hint: Rust: cargo build --target wasm32-wasip1; ")

	code, out, _ = toolhost(t.Context(), "inspect", file, "--json")
	require.Equal(t, 1, code)
	var shown struct {
		Component struct {
			Imports []struct{ Name, Kind string }
		}
		Error string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &shown))
	require.Equal(t, "wasi:cli/environment@0.2.0", shown.Component.Imports[0].Name)
	require.Contains(t, shown.Error, "this is a component")
}
