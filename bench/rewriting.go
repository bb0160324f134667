package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/toolhost/toolhost/bench/internal/engine"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// rewriting prints what rewriting costs: its time beside the runtime's to
// compile the same module, and how much code and module grow.
func rewriting(load *loader) error {
	fmt.Println("\nrewriting          rewrite     compile   compile metered     module        code")
	var seen []string
	for _, w := range workloads {
		if slices.Contains(seen, w.file) {
			continue
		}
		seen = append(seen, w.file)
		wasm, err := load.read(w.file)
		if err != nil {
			return err
		}
		var program []byte
		rewrite, err := best(5, func() error { program, err = engine.Metered(wasm); return err })
		if err != nil {
			return err
		}
		plain, err := best(3, func() error { return compile(wasm) })
		if err != nil {
			return err
		}
		metered, err := best(3, func() error { return compile(program) })
		if err != nil {
			return err
		}
		before, err := engine.CodeSize(wasm)
		if err != nil {
			return err
		}
		after, err := engine.CodeSize(program)
		if err != nil {
			return err
		}
		fmt.Printf("%-15s %8.2f ms %8.1f ms %14.1f ms   %+7.1f %%   %+7.1f %%\n", w.file, 1e3*rewrite, 1e3*plain, 1e3*metered,
			100*(float64(len(program))/float64(len(wasm))-1), 100*(float64(after)/float64(before)-1))
	}
	return nil
}

// best is the shortest time, in seconds, of n runs.
func best(n int, run func() error) (float64, error) {
	var times []float64
	for range n {
		start := time.Now()
		if err := run(); err != nil {
			return 0, err
		}
		times = append(times, time.Since(start).Seconds())
	}
	return slices.Min(times), nil
}

func compile(wasm []byte) error {
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(wasmbin.Features))
	defer rt.Close(ctx)
	_, err := rt.CompileModule(ctx, wasm)
	return err
}
