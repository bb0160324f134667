package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// endless is a guest that does not return by itself.
type endless struct {
	name string
	wasm func(*loader) ([]byte, error)
	call string
	arg  uint64
}

var endlessGuests = []endless{
	{"tight loop", fromFile("sieve"), "run", 1 << 30},
	{"interpreter", fromFile("vm"), "run", 1 << 30},
	{"memory-bound loop", fromFile("memory"), "run", 1 << 30},
	{"deep recursion", fromFile("fib"), "run", 60},
	{"go, allocating", fromFile("go"), "trees", 1 << 30},
	{"endless bulk fill", bulkFill, "run", 1 << 30},
	{"blocked host call", blocked, "run", 0},
}

func fromFile(name string) func(*loader) ([]byte, error) {
	return func(l *loader) ([]byte, error) { return l.read(name) }
}

var i32 = []wasmbin.ValType{wasmbin.I32}

// oneFunction is a module that exports a function of type (i32) -> i32 as run.
func oneFunction(body []byte, change func(*wasmbin.Module)) []byte {
	m := &wasmbin.Module{
		Types:     []wasmbin.FuncType{{Params: i32, Results: i32}},
		Functions: []uint32{0},
		Codes:     []wasmbin.Code{{Body: body}},
		Memories:  []wasmbin.Limits{{Min: 1024}},
	}
	change(m)
	m.Exports = []wasmbin.Export{{Name: "run", Index: uint32(m.ImportCount(wasmbin.KindFunc))}}
	return m.Encode()
}

// bulkFill fills 64 MiB over and over.
func bulkFill(*loader) ([]byte, error) {
	fill := wasmbin.AppendS64([]byte{0x03, 0x40, 0x41, 0, 0x41, 1, 0x41}, 64<<20)
	fill = append(fill, 0xfc, 0x0b, 0x00, 0x0c, 0x00, 0x0b, 0x41, 0x00, 0x0b)
	return oneFunction(fill, func(*wasmbin.Module) {}), nil
}

// blocked calls a host function that waits for the call's context.
func blocked(*loader) ([]byte, error) {
	return oneFunction([]byte{0x20, 0x00, 0x10, 0x00, 0x0b}, func(m *wasmbin.Module) {
		m.Imports = []wasmbin.Import{{Module: "bench", Name: "wait"}}
	}), nil
}

var errStopped = errors.New("stopped")

// stoppable is a guest that one goroutine runs and another stops.
type stoppable struct {
	rt       wazero.Runtime
	compiled wazero.CompiledModule
	stop     atomic.Bool
	calling  atomic.Bool   // the call has begun
	running  atomic.Bool   // and the guest has been seen in it
	done     chan struct{} // closed by a stop, for host calls that wait
}

func newStoppable(wasm []byte) (*stoppable, error) {
	ctx := context.Background()
	s := &stoppable{done: make(chan struct{})}
	program, err := rewritten(wasm)
	if err != nil {
		return nil, err
	}
	var meter *fuel.Meter
	s.rt = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(wasmbin.Features))
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, s.rt); err != nil {
		return nil, err
	}
	_, err = s.rt.NewHostModuleBuilder(fuel.ImportModule).NewFunctionBuilder().
		WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) {
			left, err := meter.Refill(int64(stack[0]))
			if err != nil {
				panic(err)
			}
			stack[0] = uint64(left)
		}), []api.ValueType{api.ValueTypeI64}, []api.ValueType{api.ValueTypeI64}).
		Export(fuel.ImportName).Instantiate(ctx)
	if err != nil {
		return nil, err
	}
	_, err = s.rt.NewHostModuleBuilder("bench").NewFunctionBuilder().
		WithFunc(func(int32) int32 { s.running.Store(true); <-s.done; panic(errStopped) }).Export("wait").Instantiate(ctx)
	if err != nil {
		return nil, err
	}
	meter = fuel.NewMeter(fuel.MaxBudget, func() error {
		if s.calling.Load() {
			s.running.Store(true)
		}
		if s.stop.Load() {
			return errStopped
		}
		return nil
	})
	s.compiled, err = s.rt.CompileModule(ctx, program)
	return s, err
}

// run calls the export of a new instance. It returns when that had been stopped,
// or its error.
func (s *stoppable) run(export string, arg uint64) (time.Time, error) {
	ctx := context.Background()
	mod, err := s.rt.InstantiateModule(ctx, s.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize"))
	if errors.Is(err, errStopped) {
		return time.Now(), nil // while it was set up
	}
	if err != nil {
		return time.Time{}, err
	}
	defer mod.Close(ctx)
	s.calling.Store(true)
	_, err = mod.ExportedFunction(export).Call(ctx, arg)
	ended := time.Now()
	if !errors.Is(err, errStopped) {
		return ended, fmt.Errorf("%s: ended by itself: %w", export, err)
	}
	return ended, nil
}

// latencies prints how long a guest runs on after it was told to stop, with all
// processors busy, and how long the collector stops the world meanwhile.
func latencies(load *loader, rounds int) error {
	fmt.Println("\nfrom stop to stopped, all processors busy     p50       p99       max")
	for _, e := range endlessGuests {
		times, err := stopTimes(load, e, rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		fmt.Printf("%-40s %7.3f   %7.3f   %7.3f ms\n", e.name, 1e3*quantile(times, .5), 1e3*quantile(times, .99), 1e3*quantile(times, 1))
	}
	return pauses(load, rounds)
}

func stopTimes(load *loader, e endless, rounds int) ([]float64, error) {
	wasm, err := e.wasm(load)
	if err != nil {
		return nil, err
	}
	release, err := keepBusy(load, runtime.GOMAXPROCS(0)-1)
	if err != nil {
		return nil, err
	}
	defer release()
	s, err := newStoppable(wasm)
	if err != nil {
		return nil, err
	}
	defer s.rt.Close(context.Background())
	var times []float64
	for range rounds {
		s.done = make(chan struct{})
		s.stop.Store(false)
		s.calling.Store(false)
		s.running.Store(false)
		var at time.Time
		ended := make(chan error, 1)
		go func() {
			var err error
			at, err = s.run(e.call, e.arg)
			ended <- err
		}()
		for !s.running.Load() {
			time.Sleep(time.Millisecond)
		}
		start := time.Now()
		s.stop.Store(true)
		close(s.done)
		if err := <-ended; err != nil {
			return nil, err
		}
		times = append(times, at.Sub(start).Seconds())
	}
	return times, nil
}

// keepBusy has n guests spin until the returned function is called.
func keepBusy(load *loader, n int) (func(), error) {
	wasm, err := load.read("sieve")
	if err != nil {
		return nil, err
	}
	var spinning []*stoppable
	var wg sync.WaitGroup
	for range n {
		s, err := newStoppable(wasm)
		if err != nil {
			return nil, err
		}
		spinning = append(spinning, s)
		wg.Go(func() { _, _ = s.run("run", 1<<30) })
	}
	return func() {
		for _, s := range spinning {
			s.stop.Store(true)
		}
		wg.Wait()
		for _, s := range spinning {
			s.rt.Close(context.Background())
		}
	}, nil
}

// pauses prints how long the collector stops the world while guests spin on all
// processors.
func pauses(load *loader, rounds int) error {
	const name = "/sched/pauses/total/gc:seconds"
	read := func() *metrics.Float64Histogram {
		sample := []metrics.Sample{{Name: name}}
		metrics.Read(sample)
		return sample[0].Value.Float64Histogram()
	}
	release, err := keepBusy(load, runtime.GOMAXPROCS(0))
	if err != nil {
		return err
	}
	defer release()
	before := read()
	for range rounds {
		runtime.GC()
	}
	after := read()
	total := uint64(0)
	for i := range after.Counts {
		after.Counts[i] -= before.Counts[i]
		total += after.Counts[i]
	}
	at := func(q float64) float64 {
		n := uint64(math.Ceil(q * float64(total)))
		for i, c := range after.Counts {
			if n <= c {
				return 1e3 * after.Buckets[i+1]
			}
			n -= c
		}
		return math.Inf(1)
	}
	fmt.Printf("%-40s %7.3f   %7.3f   %7.3f ms\n", "collector stops the world, guests spin", at(.5), at(.99), at(1))
	return nil
}
