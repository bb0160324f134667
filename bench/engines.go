package main

import (
	"context"
	"time"

	"github.com/bytecodealliance/wasmtime-go/v39"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// engine loads a module in one way of running it.
type engine struct {
	name string
	base string // name of the engine it is compared with
	load func(wasm []byte) (*program, error)
}

// program is a loaded module.
type program struct {
	compile time.Duration
	call    func(export string, arg int32) (int32, error)
	close   func()
}

var engines = []engine{
	{"wazero", "wazero", func(w []byte) (*program, error) { return loadWazero(w, false, false) }},
	{"wazero again", "wazero", func(w []byte) (*program, error) { return loadWazero(w, false, false) }},
	{"metered", "wazero", func(w []byte) (*program, error) { return loadWazero(w, true, false) }},
	{"close on done", "wazero", func(w []byte) (*program, error) { return loadWazero(w, false, true) }},
	{"wasmtime", "wasmtime", func(w []byte) (*program, error) { return loadWasmtime(w, false, false) }},
	{"wasmtime fuel", "wasmtime", func(w []byte) (*program, error) { return loadWasmtime(w, true, false) }},
	{"wasmtime epoch", "wasmtime", func(w []byte) (*program, error) { return loadWasmtime(w, false, true) }},
}

// loadWazero runs a module on wazero: plain, metered, or with wazero's own way
// to stop it.
func loadWazero(wasm []byte, metered, closeOnDone bool) (*program, error) {
	ctx := context.Background()
	var cancel context.CancelFunc = func() {}
	if closeOnDone {
		ctx, cancel = context.WithCancel(ctx)
	}
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(wasmbin.Features).WithCloseOnContextDone(closeOnDone))
	p := &program{close: func() { rt.Close(context.Background()); cancel() }}
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, rt); err != nil {
		return nil, err
	}
	meter := fuel.NewMeter(fuel.MaxBudget, nil)
	start := time.Now()
	if metered {
		_, err := rt.NewHostModuleBuilder(fuel.ImportModule).NewFunctionBuilder().
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
		start = time.Now()
		if wasm, err = rewritten(wasm); err != nil {
			return nil, err
		}
	}
	compiled, err := rt.CompileModule(ctx, wasm)
	if err != nil {
		return nil, err
	}
	p.compile = time.Since(start)
	mod, err := rt.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithStartFunctions("_initialize"))
	if err != nil {
		return nil, err
	}
	p.call = func(export string, arg int32) (int32, error) {
		res, err := mod.ExportedFunction(export).Call(ctx, uint64(uint32(arg)))
		if err != nil {
			return 0, err
		}
		return int32(res[0]), nil
	}
	return p, nil
}

// loadWasmtime runs a module on wasmtime: plain, with fuel, or with epochs that
// never end.
func loadWasmtime(wasm []byte, fuel, epoch bool) (*program, error) {
	config := wasmtime.NewConfig()
	config.SetConsumeFuel(fuel)
	config.SetEpochInterruption(epoch)
	eng := wasmtime.NewEngineWithConfig(config)
	store := wasmtime.NewStore(eng)
	if fuel {
		if err := store.SetFuel(1 << 62); err != nil {
			return nil, err
		}
	}
	if epoch {
		store.SetEpochDeadline(1 << 40)
	}
	store.SetWasi(wasmtime.NewWasiConfig())
	linker := wasmtime.NewLinker(eng)
	if err := linker.DefineWasi(); err != nil {
		return nil, err
	}
	start := time.Now()
	module, err := wasmtime.NewModule(eng, wasm)
	if err != nil {
		return nil, err
	}
	p := &program{compile: time.Since(start), close: func() { store.Close(); eng.Close() }}
	instance, err := linker.Instantiate(store, module)
	if err != nil {
		return nil, err
	}
	if f := instance.GetFunc(store, "_initialize"); f != nil {
		if _, err := f.Call(store); err != nil {
			return nil, err
		}
	}
	p.call = func(export string, arg int32) (int32, error) {
		res, err := instance.GetFunc(store, export).Call(store, arg)
		if err != nil {
			return 0, err
		}
		return res.(int32), nil
	}
	return p, nil
}

// rewritten returns a module that counts what it executes.
func rewritten(wasm []byte) ([]byte, error) {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return nil, err
	}
	_, err = fuel.Rewrite(m)
	return m.Encode(), err
}
