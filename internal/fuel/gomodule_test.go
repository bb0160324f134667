package fuel

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
)

const goGuest = `package main

import (
	"sort"
	"strings"
)

//go:wasmexport primes
func primes(n int32) int32 {
	sieve := make([]bool, n+1)
	count := int32(0)
	for i := int32(2); i <= n; i++ {
		if !sieve[i] {
			count++
			for j := 2 * i; j <= n; j += i {
				sieve[j] = true
			}
		}
	}
	return count
}

//go:wasmexport words
func words(n int32) int32 {
	m := map[string]int{}
	for i := range int(n) {
		m[strings.Repeat("x", i%17)] += i
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	ch := make(chan int)
	go func() {
		for _, k := range keys {
			ch <- m[k]
		}
		close(ch)
	}()
	sum := 0
	for v := range ch {
		sum = sum*31 + v
	}
	return int32(sum)
}

//go:wasmexport spin
func spin() {
	for i := 0; ; i++ {
		sink = i
	}
}

var sink int

func main() {}
`

func TestGoModule(t *testing.T) {
	wasm := buildGo(t, goGuest)
	ctx := context.Background()

	plain := wazero.NewRuntime(ctx)
	defer plain.Close(ctx)
	withWASI(t)(plain)
	ref, err := plain.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithStartFunctions("_initialize"))
	require.NoError(t, err)

	g := instantiate(t, wasm, NewMeter(MaxBudget, nil), withWASI(t))
	_, used, err := g.call(MaxBudget, "_initialize")
	require.NoError(t, err)

	require.Positive(t, used)
	for _, call := range []struct {
		name string
		arg  uint64
	}{{"primes", 10}, {"primes", 100_000}, {"words", 10_000}} {
		want, err := ref.ExportedFunction(call.name).Call(ctx, call.arg)
		require.NoError(t, err)
		got, used, err := g.call(MaxBudget, call.name, call.arg)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Positive(t, used)
	}

	_, used, err = g.call(1_000_000, "spin")
	require.ErrorIs(t, err, ErrExhausted)
	require.EqualValues(t, 1_000_000, used)
}
