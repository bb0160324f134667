package host_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// scripted is a runtime of scripts: it reads its script while it starts up, and tells
// the first four bytes when it is called.
var scripted = guest{
	initialize: seq(drop(read(abi.FieldScript, 512, 4)), times(10_000)),
	invoke:     seq(tell(load(i32(512))), i32(0)),
}

func withScript(wasm []byte, script string) []byte {
	return wasmbin.AppendCustom(wasm, abi.SectionScript, []byte(script))
}

// TestScriptsShareCode: a runtime is compiled once, whatever its script and its
// manifest are, also by calls that come at once; and each plugin keeps its own of all
// else. The names of functions are part of the code, because stacks have them.
func TestScriptsShareCode(t *testing.T) {
	h := cachedHost(t, t.TempDir(), 0)
	wasm := scripted.wasm()
	modules := make([]*host.Module, 6)
	var wg sync.WaitGroup
	for i := range modules {
		wg.Go(func() {
			m, err := h.Compile(context.Background(), withScript(wasm, string(rune('a'+i))+"bcd"))
			if err == nil {
				modules[i] = m
			}
		})
	}
	wg.Wait()
	require.Equal(t, int64(1), h.Stats().Compiled.Anew)
	require.Equal(t, int64(len(modules)-1), h.Stats().Compiled.Cached)

	digests := map[string]bool{}
	for i, m := range modules {
		require.NotNil(t, m)
		digests[m.Info.Digest] = true
		for range 2 {
			o := do(context.Background(), h, m, host.Call{})
			require.NoError(t, o.err)
			require.Equal(t, string(rune('a'+i))+"bcd", o.stdout)
		}
		require.Equal(t, int64(1), m.Stats().Started, "a plugin has snapshots of its own")
		if i%2 == 0 {
			require.NoError(t, m.Close(context.Background()), "the others keep the code")
		}
	}
	require.Len(t, digests, len(modules))

	require.True(t, found(t, h, wasmbin.AppendCustom(wasm, abi.SectionManifest, []byte("{}"))))
	require.True(t, found(t, h, wasm))
	require.False(t, found(t, h, wasmbin.AppendCustom(wasm, "name", []byte{0, 2, 1, 'x'})))
}

// TestUsageOfStartingUp: what a plugin takes to start up is shown apart, and is the same
// for a call that continues from a snapshot.
func TestUsageOfStartingUp(t *testing.T) {
	h := newHost(t, nil)
	m := compile(t, h, withScript(scripted.wasm(), "1234"))
	first := do(context.Background(), h, m, host.Call{})
	again := do(context.Background(), h, m, host.Call{})
	require.NoError(t, first.err)
	require.Equal(t, int64(1), m.Stats().Warm)
	require.Greater(t, first.Usage.StartupFuel, int64(10_000))
	require.Equal(t, first.Usage.StartupFuel, again.Usage.StartupFuel)
	require.Equal(t, first.Usage.Fuel, again.Usage.Fuel)
	for _, u := range []abi.Usage{first.Usage, again.Usage} {
		require.Less(t, u.StartupFuel, u.Fuel)
		require.Positive(t, u.Startup)
		require.LessOrEqual(t, u.Startup, u.Wall)
	}

	o := do(context.Background(), h, compile(t, h, listener.wasm()), host.Call{})
	require.NoError(t, o.err)
	require.Zero(t, o.Usage.StartupFuel)
	require.Zero(t, o.Usage.Startup)
}

// TestDescribeBudget: what builds plugins may give a description more fuel than a host
// that loads them, or less.
func TestDescribeBudget(t *testing.T) {
	if raced {
		t.Skip("nothing is shared, and interpreting is far slower")
	}
	h := newHost(t, nil)
	wasm := guest{describe: says(times(10_000_000)), data: "{}"}.wasm()
	for fuel, ok := range map[int64]bool{0: true, 55_000_000: false, 10_000: false, 1_000_000_000: true} {
		manifest, err := h.DescribeWith(context.Background(), wasm, host.DescribeOptions{Fuel: fuel})
		if ok {
			require.NoError(t, err)
			require.Equal(t, "{}", string(manifest))
			continue
		}
		require.ErrorIs(t, err, host.ErrFuel)
	}

	_, err := h.DescribeWith(context.Background(), guest{describe: says(times(100_000_000)), data: "{}"}.wasm(), host.DescribeOptions{})
	require.ErrorIs(t, err, host.ErrFuel)
}
