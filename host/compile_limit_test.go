//go:build !race

package host_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/plugintest/bombs"
)

// TestCompileLimit: a module that takes more than it may is refused. It is not
// tried again, by this host or the next, until it may take more. With the race
// detector a process cannot have so little memory.
func TestCompileLimit(t *testing.T) {
	dir := t.TempDir()
	little := host.Config{CacheDir: dir, CompileMemory: 300 << 20}
	wasm := manyFunctions(700_000)
	h := inChild(t, little)
	_, err := h.Compile(t.Context(), wasm)
	require.ErrorIs(t, err, host.ErrCompileLimit)
	require.ErrorIs(t, err, host.ErrABI)
	require.ErrorContains(t, err, "more than the 300 MiB of memory allowed")
	var module *host.ModuleError
	require.ErrorAs(t, err, &module)

	digest := digestOf(wasm)
	require.Equal(t, err.Error(), h.Refused(digest).Error())
	for name, again := range map[string]*host.Host{"same host": h, "next host": inChild(t, little)} {
		_, err := again.Compile(t.Context(), wasm)
		require.ErrorIs(t, err, host.ErrCompileLimit, name)
		require.Zero(t, again.Stats().Compiled.Cached, name)
	}

	more := inChild(t, host.Config{CacheDir: dir})
	callEcho(t, more)
	require.NoError(t, more.Refused(digest), "it would be tried again")
}

// TestBombs: a module that would take the compiler minutes, gigabytes or its stack is
// refused with the reason: some by a bound on size, the others by the limits of the child.
func TestBombs(t *testing.T) {
	reasons := map[string]string{
		"loops with a live local": "a function with more than 200000 blocks: split it",
		"additions":               "bytes, at most 3145728: split it",
		"functions with locals":   "locals in all functions, at most 16777216",
		"wide types":              " parameters and results of types, expected at most 262144",
		"calls among globals":     "compile limit reached: compiling it takes more than the ",
		"ifs with a live local":   "compile limit reached: compiling it takes ", // more than its processor time, or its time on a busy machine
		"nested loops":            "compile limit reached: compiling it takes ",
	}
	h := inChild(t, host.Config{CompileTime: time.Second, CompileMemory: 512 << 20})
	for _, b := range bombs.All() {
		want, ok := reasons[b.Name]
		if !ok {
			continue
		}
		delete(reasons, b.Name)
		t.Run(b.Name, func(t *testing.T) {
			_, err := h.Compile(t.Context(), b.Wasm())
			refused := (*host.ModuleError)(nil)
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, want)

			_, again := h.Describe(t.Context(), b.Wasm())
			require.EqualError(t, again, err.Error())
		})
	}
	require.Empty(t, reasons, "there is no such bomb")
	callEcho(t, inChild(t, host.Config{}))
}

// TestAllBombs: each bomb is compiled within the limits, or refused.
func TestAllBombs(t *testing.T) {
	fulltest.Only(t, "compiles for minutes")
	h := inChild(t, host.Config{CompileTime: 2 * time.Second})
	for _, b := range bombs.All() {
		t.Run(b.Name, func(t *testing.T) {
			m, err := h.Compile(t.Context(), b.Wasm())
			if err != nil {
				require.ErrorIs(t, err, host.ErrABI)
				return
			}
			require.NoError(t, m.Close(t.Context()))
		})
	}
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

// manyFunctions is a module that takes a kilobyte of memory to compile for each of
// its functions.
func manyFunctions(n int) []byte {
	all := bombs.All()
	i := slices.IndexFunc(all, func(b bombs.Bomb) bool { return b.Name == "functions" })
	return all[i].Make(n)
}
