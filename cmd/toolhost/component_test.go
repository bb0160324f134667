package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A component is refused with the way out.
func TestInspectComponent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.wasm")
	require.NoError(t, os.WriteFile(file, []byte("\x00asm\x0d\x00\x01\x00"), 0o600))
	code, _, errs := toolhost(t.Context(), "inspect", file)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "this is a component, and only core modules are accepted; build for wasm32-wasip1")
	require.Contains(t, errs, "\ntoolhost: hint: Rust: cargo build --target wasm32-wasip1; ")
}
