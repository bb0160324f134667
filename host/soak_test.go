package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// soakCalls is how many calls TestSoak makes, unless the environment variable
// of that name says otherwise.
const soakCalls = 20_000

// TestSoak: however many calls there were, in whatever mode and however they
// ended, heap, mappings, open files and goroutines are where they were.
func TestSoak(t *testing.T) {
	fulltest.Only(t, "takes minutes with the race detector")
	calls := soakCalls
	if n, err := strconv.Atoi(os.Getenv("TOOLHOST_SOAK_CALLS")); err == nil {
		calls = n
	}
	all := soak(t)
	const letters = "00000000bepnqtxzcfoma"
	round := func(n int) {
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := w; i < n; i += 4 {
					s := all[i%len(all)]
					s.call.Args = fmt.Appendf(nil, `{"e":"%c"}`, letters[i/len(all)%len(letters)])
					_, _ = s.host.Call(context.Background(), s.module, s.call)
				}
			})
		}
		wg.Wait()
	}
	round(2 * len(all) * len(letters))
	goroutines, files, heap, mapped := runtime.NumGoroutine(), openFiles(), liveHeap(), mappings()
	round(calls)
	requireGoroutines(t, goroutines)
	require.Equal(t, files, openFiles())
	heapNow, mappedNow := liveHeap(), mappings()
	t.Logf("%d calls: heap %.1f to %.1f MiB, mappings %d to %d, files %d, goroutines %d", calls, mib(int64(heap)), mib(int64(heapNow)), mapped, mappedNow, len(files), goroutines)
	require.Less(t, int64(heapNow)-int64(heap), int64(4<<20))
	require.Less(t, mappedNow-mapped, 64, "of which each warm instance has two")
	for _, s := range all {
		stats := s.module.Stats()
		require.Zero(t, stats.Running+stats.Waiting)
		require.LessOrEqual(t, stats.Idle, host.DefaultWarm)
		require.Equal(t, stats.Idle, stats.Instances)
		require.Zero(t, stats.MemoryOf.Stacks+stats.MemoryOf.Buffers)
	}
	if reactor := slices.IndexFunc(all, func(s soaked) bool { return s.name == "copied" }); calls >= soakCalls {
		o := all[reactor].module.Stats().Outcomes
		for name, n := range map[string]int64{
			"success": o.Success, "tool error": o.ToolError, "connection": o.ConnectionRequired,
			"fuel": o.Fuel, "memory": o.Memory, "output": o.Output, "internal": o.Internal,
		} {
			require.Positive(t, n, name)
		}
	}
}

// soaked is a plugin in one of the modes, and a call of it.
type soaked struct {
	name   string // of the mode
	host   *host.Host
	module *host.Module
	call   host.Call
}

// soak are the vandals, those of a kind on one host, with little of everything
// so that they meet each limit soon.
func soak(t *testing.T) (all []soaked) {
	hosts := map[string]*host.Host{}
	vandals := vandals(t)
	for _, name := range slices.Sorted(maps.Keys(vandals)) {
		v := vandals[name]
		kind := fmt.Sprintf("%p", v.change)
		if hosts[kind] == nil {
			hosts[kind] = newHost(t, nil)
			if v.change != nil {
				v.change(hosts[kind])
			}
		}
		c := v.call
		c.Tool, c.Policy.Memory, c.Policy.Fuel, c.Policy.Output = "tool", 40*page, 1_000_000, 64<<10
		all = append(all, soaked{name, hosts[kind], compile(t, hosts[kind], v.guest.wasm()), c})
	}
	return all
}

// mappings counts the mappings of this process, where the system reports them.
func mappings() int {
	data, _ := os.ReadFile("/proc/self/maps")
	return bytes.Count(data, []byte("\n"))
}

// crowd is twenty plugins that use some memory, all of it, and compute a little.
// They grow to it, or have it from the start, which one that is called again
// without having been put back needs.
func crowd(growing bool) (plugins [][]byte) {
	for i := range 20 {
		size, grown := 1+2*i, op(wasmbin.OpNop)
		if growing {
			size, grown = 1+i, when(op(wasmbin.OpI32Eq, grow(i), i32(-1)), unreachable())
		}
		fill := append(seq(i32(int64(1+i)*page), i32(1), i32(int64(i)*page)), 0xfc, 11, 0) // memory.fill
		plugins = append(plugins, guest{
			initialize: store(600, i32(int64(i))),
			invoke:     seq(grown, fill, times(2000, code{byte(wasmbin.OpNop)}), tell(load(i32(600))), i32(0)),
			change:     func(m *wasmbin.Module) { m.Memories[0].Min = uint32(size) },
		}.wasm())
	}
	return plugins
}

// resident is how much memory this process has, and the most it had since the
// last time that was asked for, in bytes; 0 where the system does not tell.
func resident() (now, most int64) {
	data, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(data)) {
		_, _ = fmt.Sscanf(line, "VmRSS: %d kB", &now)
		_, _ = fmt.Sscanf(line, "VmHWM: %d kB", &most)
	}
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // see proc_pid_clear_refs(5)
	return now << 10, most << 10
}

// TestCrowd: a thousand calls at once over twenty plugins, with less memory than
// they would like. Each answers, or is refused and says which limit it met, and
// neither the ledger nor the process ever has more than that.
func TestCrowd(t *testing.T) {
	const (
		ceiling = 200 * page
		beside  = 100 << 20 // for Go's heap and the code, with room for the race detector
	)
	h := hostWith(t, host.Config{Memory: ceiling, TotalCalls: 1000})
	var modules []*host.Module
	for _, wasm := range crowd(true) {
		modules = append(modules, compile(t, h, wasm))
	}
	before, _ := resident()
	outcomes := make([]outcome, 1000)
	var wg sync.WaitGroup
	for i := range outcomes {
		wg.Go(func() { outcomes[i] = do(context.Background(), h, modules[i%len(modules)], host.Call{}) })
	}
	wg.Wait()
	_, most := resident()
	answered := 0
	for i, o := range outcomes {
		if o.err == nil {
			answered++
			require.Equal(t, []int32{int32(i % len(modules))}, o.codes())
			continue
		}
		require.ErrorIs(t, o.err, host.ErrHostMemory)
		require.ErrorContains(t, o.err, fmt.Sprint("may hold ", ceiling, " bytes together"))
		require.Equal(t, abi.LimitMemory, o.Limit)
	}
	s := h.Stats()
	require.Positive(t, answered)
	require.Equal(t, host.Outcomes{Success: int64(answered), HostMemory: int64(len(outcomes) - answered)}, s.Outcomes)
	require.LessOrEqual(t, s.MemoryPeak, int64(ceiling))
	require.Less(t, most-before, int64(ceiling+beside))
	t.Logf("%d of %d answered; at most %.1f MiB in the ledger of %.1f allowed, the process grew by %.1f",
		answered, len(outcomes), mib(s.MemoryPeak), mib(ceiling), mib(most-before))
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// BenchmarkCrowd measures the time for one of a thousand calls at once over
// twenty plugins: on a host as it is; there with plugins that grow in each call;
// on one whose memory holds few of them, so that it refuses some; and beside them
// with wazero alone: one instance of each plugin and a lock, which leaks from
// call to call, and a new instance for each call, of plugins that have their
// memory from the start and of those that grow.
func BenchmarkCrowd(b *testing.B) {
	const calls = 1000
	through := func(plugins [][]byte, cfg host.Config) (*host.Host, func(int)) {
		h := hostWith(b, cfg)
		var modules []*host.Module
		for _, wasm := range plugins {
			modules = append(modules, compile(b, h, wasm))
		}
		return h, func(i int) {
			if o := do(context.Background(), h, modules[i%len(modules)], host.Call{}); o.err != nil && !errors.Is(o.err, host.ErrHostMemory) {
				b.Error(o.err)
			}
		}
	}
	h, clean := through(crowd(false), host.Config{})
	_, growing := through(crowd(true), host.Config{})
	tight, refusing := through(crowd(false), host.Config{Memory: 200 * page, TotalCalls: calls})
	alone := func(growing bool) (raws []*raw) {
		for _, wasm := range crowd(growing) {
			raws = append(raws, newRaw(b, wasm, "tool", "{}"))
		}
		return raws
	}
	fresh := func(raws []*raw) func(int) {
		return func(i int) {
			if len(raws[i%len(raws)].call()) == 0 {
				b.Error("no result")
			}
		}
	}
	raws := alone(false)
	pooled, locks := make([]func() []byte, len(raws)), make([]sync.Mutex, len(raws))
	for i, r := range raws {
		pooled[i] = r.pooled(b)
	}
	ways := map[string]func(int){
		"clean": clean, "growing": growing, "refusing": refusing,
		"one-and-a-lock": func(i int) {
			i %= len(raws)
			locks[i].Lock()
			defer locks[i].Unlock()
			pooled[i]()
		},
		"fresh": fresh(raws), "fresh-growing": fresh(alone(true)),
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for name, way := range ways {
			begin := time.Now()
			var wg sync.WaitGroup
			for i := range calls {
				wg.Go(func() { way(i) })
			}
			wg.Wait()
			took[name] = append(took[name], time.Since(begin)/calls)
		}
	}
	b.ReportMetric(0, "ns/op") // of all of them: says nothing
	for name, d := range took {
		report(b, name, d)
	}
	b.ReportMetric(mib(h.Stats().MemoryPeak), "clean-MiB-peak")
	b.ReportMetric(mib(tight.Stats().MemoryPeak), "refusing-MiB-peak")
	b.ReportMetric(float64(tight.Stats().Outcomes.HostMemory)/float64(b.N)/calls, "refused-share")
}
