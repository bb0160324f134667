package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"golang.org/x/sys/unix"

	"github.com/toolhost/toolhost/bench/internal/engine"
	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// checkFor is the processor time for which each guest is observed.
const checkFor = time.Second

// checks prints the processor time that endless guests use between two checks of their
// counter: what they add to the time that a stop takes, whatever else the machine does.
func checks(load *loader) error {
	fmt.Println("\nprocessor time between two checks             p50       p99       max")
	for _, e := range endlessGuests {
		if e.waits {
			continue
		}
		wasm, err := e.wasm(load)
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		times, err := betweenChecks(wasm)
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		fmt.Printf("%-40s %7.3f   %7.3f   %7.3f ms\n", e.name, 1e3*quantile(times, .5), 1e3*quantile(times, .99), 1e3*quantile(times, 1))
	}
	return nil
}

var errObserved = errors.New("observed long enough")

// betweenChecks returns the seconds between each two checks of a command.
func betweenChecks(wasm []byte) (times []float64, err error) {
	if wasm, err = engine.Metered(wasm); err != nil {
		return nil, err
	}
	room, err := unix.Mmap(-1, 0, int(policy.Memory), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	defer unix.Munmap(room)
	ctx := experimental.WithMemoryAllocator(context.Background(),
		experimental.MemoryAllocatorFunc(func(_, _ uint64) experimental.LinearMemory { return mapped(room) }))
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(wasmbin.Features))
	defer r.Close(ctx)
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, r); err != nil {
		return nil, err
	}

	var began, last time.Duration
	meter := fuel.NewMeter(fuel.MaxBudget, func() error {
		now := engine.ProcessorTime()
		if last > 0 { // before the first check the instance was made
			times = append(times, (now - last).Seconds())
		}
		if now-began > checkFor {
			return errObserved
		}
		last = engine.ProcessorTime()
		return nil
	})
	if err := engine.DefineRefill(ctx, r, meter.Refill); err != nil {
		return nil, err
	}
	compiled, err := r.CompileModule(ctx, wasm)
	if err != nil {
		return nil, err
	}

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began = engine.ProcessorTime()
	if _, err := r.InstantiateModule(ctx, compiled, wazero.NewModuleConfig()); !errors.Is(err, errObserved) {
		return nil, fmt.Errorf("ended by itself: %w", err)
	}
	return times, nil
}

// mapped is a linear memory that is reserved, as the host has it: growing it copies nothing.
type mapped []byte

// Reallocate implements experimental.LinearMemory.
func (m mapped) Reallocate(size uint64) []byte {
	if size > uint64(len(m)) {
		return nil
	}
	return m[:size:size]
}

// Free implements experimental.LinearMemory.
func (mapped) Free() {}
