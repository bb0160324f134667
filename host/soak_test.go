package host_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// soakCalls is how many calls TestSoak makes, unless the environment variable
// of that name says otherwise.
const soakCalls = 20_000

// TestSoak: however many calls there were, heap, mappings, open files and
// goroutines are where they were.
func TestSoak(t *testing.T) {
	calls := soakCalls
	if n, err := strconv.Atoi(os.Getenv("TOOLHOST_SOAK_CALLS")); err == nil {
		calls = n
	}
	h := newHost(t, nil)
	var modules []*host.Module
	for _, v := range vandals(t) {
		modules = append(modules, compile(t, h, v.guest.wasm()))
	}
	modules = append(modules, compile(t, h, guest{command: i32(0)[:0]}.wasm()))
	letters := []byte("000000e0t0m0x")
	round := func(n int) {
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := w; i < n; i += 4 {
					args := fmt.Appendf(nil, `{"e":"%c"}`, letters[i%len(letters)])
					_, _ = h.Call(context.Background(), modules[i%len(modules)], host.Call{Tool: "tool", Args: args, Policy: host.Policy{Memory: 20 * page}})
				}
			})
		}
		wg.Wait()
	}
	round(2000)
	goroutines, files, heap, maps := runtime.NumGoroutine(), openFiles(), liveHeap(), mappings()
	round(calls)
	requireGoroutines(t, goroutines)
	require.Equal(t, files, openFiles())
	require.Less(t, int64(liveHeap())-int64(heap), int64(2<<20))
	require.Less(t, mappings()-maps, 64, "of which each warm instance has two")
	require.Zero(t, h.Stats().Running+h.Stats().Waiting)
	require.LessOrEqual(t, h.Stats().Idle, len(modules)*host.DefaultWarm)
}

// mappings counts what this process has mapped, where the system tells.
func mappings() int {
	data, _ := os.ReadFile("/proc/self/maps")
	return bytes.Count(data, []byte("\n"))
}

// crowd is twenty plugins that use some memory and compute a little.
func crowd(t testing.TB, h *host.Host) (modules []*host.Module) {
	for i := range 20 {
		modules = append(modules, compile(t, h, guest{
			initialize: store(600, i32(int64(i))),
			invoke:     seq(drop(grow(i)), times(2000, code{byte(wasmbin.OpNop)}), tell(load(i32(600))), i32(0)),
			change:     func(m *wasmbin.Module) { m.Memories[0].Min = uint32(1 + i) },
		}.wasm()))
	}
	return modules
}

// TestCrowd: a thousand calls at once over twenty plugins, with less memory than
// they would like. Each answers, or is refused and says which limit it met.
func TestCrowd(t *testing.T) {
	const ceiling = 200 * page
	h := hostWith(t, host.Config{Memory: ceiling})
	modules := crowd(t, h)
	outcomes := make([]outcome, 1000)
	var wg sync.WaitGroup
	for i := range outcomes {
		wg.Go(func() { outcomes[i] = do(context.Background(), h, modules[i%len(modules)], host.Call{}) })
	}
	wg.Wait()
	answered := 0
	for i, o := range outcomes {
		if o.err == nil {
			answered++
			require.Equal(t, []int32{int32(i % len(modules))}, o.codes())
			continue
		}
		require.ErrorIs(t, o.err, host.ErrMemory)
		require.Equal(t, abi.LimitMemory, o.Limit)
	}
	require.Positive(t, answered)
	require.LessOrEqual(t, h.Stats().MemoryPeak, int64(ceiling))
	t.Logf("%d of %d answered, at most %d bytes", answered, len(outcomes), h.Stats().MemoryPeak)
}

// BenchmarkCrowd measures the time for one of a thousand calls at once over
// twenty plugins, and beside it the same with a fresh instance that starts up
// for each call, and with one call at a time for each plugin.
func BenchmarkCrowd(b *testing.B) {
	h := hostWith(b, host.Config{})
	one := hostWith(b, host.Config{Calls: 1})
	for name, c := range map[string]struct {
		host   *host.Host
		impure bool
	}{"clean": {h, false}, "fresh": {h, true}, "one-at-a-time": {one, false}} {
		modules := crowd(b, c.host)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				var wg sync.WaitGroup
				for i := range 1000 {
					wg.Go(func() {
						if o := do(context.Background(), c.host, modules[i%len(modules)], host.Call{ImpureInit: c.impure}); o.err != nil {
							b.Error(o.err)
						}
					})
				}
				wg.Wait()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "µs/call")
			b.ReportMetric(float64(c.host.Stats().MemoryPeak)/(1<<20), "MiB-peak")
		})
	}
}
