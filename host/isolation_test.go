package host_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// TestNothingIsLeft: a call finds nothing of the one before it: no global, no
// memory, no table, no file descriptor, no random state.
func TestNothingIsLeft(t *testing.T) {
	count := func(e code) code { return op(wasmbin.OpI32Add, e, i32(1)) }
	g := guest{
		invoke: seq(
			opX(wasmbin.OpGlobalSet, 0, count(opX(wasmbin.OpGlobalGet, 0))), tell(opX(wasmbin.OpGlobalGet, 0)),
			store(512, count(load(i32(512)))), tell(load(i32(512))), tell(grow(1)),
			tell(opX(wasmbin.OpTableGrow, 0, code{byte(wasmbin.OpRefNull), byte(wasmbin.FuncRef)}, i32(1))),
			drop(wasi(fnRandom, 516, 4)), tell(load(i32(516))), i32(0),
		),
		change: func(m *wasmbin.Module) {
			m.Globals = []wasmbin.Global{{GlobalType: wasmbin.GlobalType{Type: wasmbin.I32, Mutable: true}, Init: append(i32(0), byte(wasmbin.OpEnd))}}
			withTable(m)
		},
	}
	h := newHost(t, nil)
	m := compile(t, h, g.wasm())
	first := do(context.Background(), h, m, host.Call{})
	require.NoError(t, first.err)
	require.Equal(t, []int32{1, 1, 1, 2}, first.codes()[:4])
	for range 3 {
		again := do(context.Background(), h, m, host.Call{})
		require.Equal(t, first.codes(), again.codes())
		require.Equal(t, first.Usage.Fuel, again.Usage.Fuel)
	}
}

// ending is a call and how it has to end.
type ending struct {
	name  string
	guest guest
	call  host.Call
	check func(outcome) error
}

// endings are calls that end in each way a call can.
func endings() []ending {
	is := func(kind abi.Kind, limit abi.Limit) func(outcome) error {
		return func(o outcome) error {
			if o.Kind != kind || o.Limit != limit {
				return fmt.Errorf("%s %s: %v", o.Kind, o.Limit, o.err)
			}
			return nil
		}
	}
	return []ending{
		{"echo", echo, host.Call{}, nil}, // see mixed
		{"error", guest{invoke: i32(1)}, host.Call{}, is(abi.ToolError, "")},
		{"panic", guest{invoke: i32(2)}, host.Call{}, is(abi.Internal, "")},
		{"trap", guest{invoke: unreachable()}, host.Call{}, is(abi.Internal, "")},
		{"start", guest{start: unreachable()}, host.Call{}, is(abi.Internal, "")},
		{"exit", guest{invoke: seq(i32(3), call(fnExit), i32(0))}, host.Call{}, is(abi.ToolError, "")},
		{"command", guest{command: seq(i32(0), call(fnExit))}, host.Call{}, is(abi.Success, "")},
		{"pointer", guest{invoke: read(0, -1, -1)}, host.Call{}, is(abi.Internal, "")},
		{"flood", guest{invoke: seq(forever(drop(write(abi.StreamOutput, 0, 1000))), i32(0))}, host.Call{Policy: host.Policy{Output: 50_000}}, is(abi.LimitReached, abi.LimitOutput)},
		{"hog", guest{invoke: seq(forever(when(op(wasmbin.OpI32Eq, grow(1), i32(-1)), unreachable())), i32(0))}, host.Call{Policy: host.Policy{Memory: 20 * page}}, is(abi.LimitReached, abi.LimitMemory)},
		{"fuel", guest{invoke: seq(forever(), i32(0))}, host.Call{Policy: host.Policy{Fuel: 1_000_000}}, is(abi.LimitReached, abi.LimitFuel)},
		{"time", guest{invoke: seq(forever(), i32(0))}, host.Call{Policy: host.Policy{Timeout: time.Millisecond}}, is(abi.LimitReached, abi.LimitTime)},
		{"sleep", guest{invoke: seq(drop(capability(dataAt, 5, dataAt+5, 20)), i32(0)), data: `sleep{"ms":1000000000000}`},
			host.Call{Policy: host.Policy{Grant: host.Grant{Clock: true}, Timeout: time.Millisecond}}, is(abi.LimitReached, abi.LimitTime)},
		{"folder", guest{invoke: seq(tell(wasi(fnPrestat, 3, 512)), i32(0))}, host.Call{Policy: host.Policy{Grant: host.Grant{Files: []host.Mount{{Dir: ".", Path: "/work"}}}}}, is(abi.Success, "")},
	}
}

// mixed makes n calls of every ending, spread over workers, and returns what
// went wrong. Each echo has to give back what it alone was given.
func mixed(h *host.Host, all []ending, modules []*host.Module, n, workers int) []error {
	work := make(chan int)
	var mu sync.Mutex
	var wrong []error
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range work {
				e, req := all[i%len(all)], all[i%len(all)].call
				req.Args = fmt.Appendf(nil, `{"n":%d}`, i)
				o := do(context.Background(), h, modules[i%len(all)], req)
				var err error
				switch {
				case e.check != nil:
					err = e.check(o)
				case o.err != nil || string(o.Value) != string(req.Args):
					err = fmt.Errorf("%s: %v", o.Value, o.err)
				}
				if err != nil {
					mu.Lock()
					wrong = append(wrong, fmt.Errorf("call %d, %s: %w", i, e.name, err))
					mu.Unlock()
				}
			}
		})
	}
	for i := range n * len(all) {
		work <- i
	}
	close(work)
	wg.Wait()
	return wrong
}

// TestCallsDoNotDisturbEachOther: a hundred calls at a time, most of which end
// badly, and each ends as it does alone.
func TestCallsDoNotDisturbEachOther(t *testing.T) {
	h := newHost(t, nil)
	all, modules := compileAll(t, h)
	require.Empty(t, mixed(h, all, modules, 30, 100))
}

func compileAll(t *testing.T, h *host.Host) (all []ending, modules []*host.Module) {
	t.Helper()
	all = endings()
	for _, e := range all {
		modules = append(modules, compile(t, h, e.guest.wasm()))
	}
	return all, modules
}

// TestNothingLeaks: after hundreds of calls of every ending there are no more
// goroutines, open files and memory than before.
func TestNothingLeaks(t *testing.T) {
	h := newHost(t, nil)
	all, modules := compileAll(t, h)
	require.Empty(t, mixed(h, all, modules, 5, 4)) // what is made once
	goroutines, files, heap := runtime.NumGoroutine(), openFiles(), liveHeap()

	const rounds = 100
	require.Empty(t, mixed(h, all, modules, rounds, 4))
	requireGoroutines(t, goroutines)
	require.Empty(t, added(files, openFiles()))
	grown := int64(liveHeap()) - int64(heap)
	require.Less(t, grown, int64(rounds*len(all))*512, "bytes that %d calls have left, of at least a page each", rounds*len(all))
}

// TestCloseLeavesNothing: the same for a host and all that it has compiled.
func TestCloseLeavesNothing(t *testing.T) {
	once := func() {
		h, err := host.New(context.Background(), host.Config{})
		require.NoError(t, err)
		all, modules := compileAll(t, h)
		require.Empty(t, mixed(h, all, modules, 2, 4))
		require.NoError(t, modules[0].Close(context.Background()))
		require.NoError(t, h.Close(context.Background()))
	}
	once()
	goroutines, files, heap := runtime.NumGoroutine(), openFiles(), liveHeap()
	for range 5 {
		once()
	}
	requireGoroutines(t, goroutines)
	require.Empty(t, added(files, openFiles()))
	require.Less(t, int64(liveHeap())-int64(heap), int64(4<<20))
}

// requireGoroutines waits for the last goroutines to return, such as the one of
// a timer that has ended a call: they have done their work, but the system may
// have taken their thread away. The time is for those that never do.
func requireGoroutines(t *testing.T, most int) {
	t.Helper()
	for late := time.Now().Add(2 * time.Minute); runtime.NumGoroutine() > most && time.Now().Before(late); {
		runtime.Gosched()
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), most)
}

// openFiles lists the open files of this process, where the system reports them.
func openFiles() []string {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	var open []string
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil { // not the one that lists
			open = append(open, target)
		}
	}
	slices.Sort(open)
	return open
}

// added are the files that are open now and were not before. Connections of an earlier test
// may close meanwhile.
func added(before, now []string) (more []string) {
	for _, file := range now {
		if i := slices.Index(before, file); i >= 0 {
			before = slices.Delete(slices.Clone(before), i, i+1)
		} else {
			more = append(more, file)
		}
	}
	return more
}

func liveHeap() uint64 {
	for range 3 { // what finalizers hold takes more than one
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
