package host_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/complexity"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/plugintest/bombs"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// TestBombs: a plugin that would take the compiler minutes, or end the process,
// is refused by name before it is compiled, and describing it fails in the same way.
func TestBombs(t *testing.T) {
	reasons := map[string]struct {
		err  error
		text string
	}{
		"loops with a live local":   {wasmbin.ErrUnsupported, "a function with more than 200000 blocks: split it"},
		"ifs with a live local":     {complexity.ErrTooComplex, "function 8: too complex to compile: "},
		"nested loops":              {complexity.ErrTooComplex, "function 8: too complex to compile: "},
		"wide br_table":             {complexity.ErrTooComplex, "steps between values that meet"},
		"calls among globals":       {complexity.ErrTooComplex, "loads of globals after calls"},
		"functions with locals":     {complexity.ErrTooComplex, "locals in all functions together"},
		"functions among types":     {complexity.ErrTooComplex, "by estimate"},
		"1,000 locals across loops": {complexity.ErrTooComplex, "steps between values that meet"},
	}
	h, err := host.New(t.Context(), host.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { h.Close(context.WithoutCancel(t.Context())) })
	for _, b := range bombs.All() {
		want, ok := reasons[b.Name]
		if !ok {
			continue
		}
		delete(reasons, b.Name)
		t.Run(b.Name, func(t *testing.T) {
			refused := (*host.ModuleError)(nil)
			_, err := h.Compile(t.Context(), b.Wasm())
			require.ErrorAs(t, err, &refused)
			require.ErrorIs(t, err, want.err)
			require.ErrorContains(t, err, want.text)

			_, err = h.Describe(t.Context(), bombs.Unsealed(b.Wasm()))
			require.ErrorAs(t, err, &refused)
			require.ErrorIs(t, err, want.err)
		})
	}
	require.Empty(t, reasons, "there is no such bomb")
}

// TestSmallBombs: what the bombs are made of is code like any other: small ones
// are compiled, and answer.
func TestSmallBombs(t *testing.T) {
	h, err := host.New(t.Context(), host.Config{CacheDir: plugintest.CacheDir()})
	require.NoError(t, err)
	t.Cleanup(func() { h.Close(context.WithoutCancel(t.Context())) })
	for _, b := range bombs.All() {
		t.Run(b.Name, func(t *testing.T) {
			m, err := h.Compile(t.Context(), b.Make(3))
			require.NoError(t, err)
			defer m.Close(t.Context())
			_, err = h.Call(t.Context(), m, host.Call{Tool: "bomb"})
			if err != nil { // some answer 0 without a result
				require.ErrorContains(t, err, "the plugin wrote neither a result nor content")
			}

			_, err = h.Describe(t.Context(), bombs.Unsealed(b.Make(3)))
			require.NoError(t, err)
		})
	}
}
