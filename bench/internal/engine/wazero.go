package engine

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

func wazeroLoader(how mode) func([]byte, Host) (*Program, error) {
	return func(wasm []byte, host Host) (*Program, error) {
		r, err := newWazero(how, host)
		if err != nil {
			return nil, err
		}
		p, err := r.load(wasm)
		if err != nil {
			r.close()
		}
		return p, err
	}
}

// onWazero is a runtime with one module, of which there is one instance at a time.
type onWazero struct {
	how      mode
	host     Host
	ctx      context.Context
	cancel   context.CancelFunc
	rt       wazero.Runtime
	meter    *fuel.Meter
	instance *Instance
}

func newWazero(how mode, host Host) (*onWazero, error) {
	r := &onWazero{how: how, host: host, ctx: context.Background(), cancel: func() {}}
	if how == closeOnDone {
		r.ctx, r.cancel = context.WithCancel(r.ctx)
	}
	r.rt = wazero.NewRuntimeWithConfig(r.ctx,
		wazero.NewRuntimeConfig().WithCoreFeatures(wasmbin.Features).WithCloseOnContextDone(how == closeOnDone))
	if _, err := wasi_snapshot_preview1.Instantiate(r.ctx, r.rt); err != nil {
		return nil, err
	}
	if how != metered {
		return r, nil
	}

	return r, DefineRefill(r.ctx, r.rt, func(left int64) (int64, error) { return r.meter.Refill(left) }) // each instance has a meter of its own
}

// DefineRefill defines the function that metered modules import.
func DefineRefill(ctx context.Context, rt wazero.Runtime, refill func(left int64) (int64, error)) error {
	call := func(_ context.Context, stack []uint64) {
		left, err := refill(int64(stack[0]))
		if err != nil {
			panic(err)
		}
		stack[0] = uint64(left)
	}
	i64 := []api.ValueType{api.ValueTypeI64}
	_, err := rt.NewHostModuleBuilder(fuel.ImportModule).NewFunctionBuilder().
		WithGoFunction(api.GoFunc(call), i64, i64).Export(fuel.ImportName).Instantiate(ctx)
	return err
}

func (r *onWazero) close() {
	_ = r.rt.Close(context.Background())
	r.cancel()
}

func (r *onWazero) load(wasm []byte) (*Program, error) {
	functions, err := imports(wasm)
	if err != nil {
		return nil, err
	}
	for module, all := range functions {
		if err := r.define(module, all); err != nil {
			return nil, err
		}
	}

	start := time.Now()
	if r.how == metered {
		if wasm, err = Metered(wasm); err != nil {
			return nil, err
		}
	}
	compiled, err := r.rt.CompileModule(experimental.WithCompilationWorkers(r.ctx, runtime.NumCPU()), wasm)
	if err != nil {
		return nil, err
	}
	return &Program{
		Compile: time.Since(start),
		start:   func() (*Instance, error) { return r.start(compiled) },
		close:   r.close,
	}, nil
}

// define defines the functions that the program imports from a module.
func (r *onWazero) define(module string, functions []function) error {
	b := r.rt.NewHostModuleBuilder(module)
	for _, f := range functions {
		call := r.host.Functions[module+"."+f.name]
		b = b.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) {
			for i, t := range f.typ.Params {
				if t == wasmbin.I32 {
					stack[i] &= 0xffff_ffff // above that there may be anything
				}
			}
			result := uint64(0)
			if call != nil {
				result = call(r.instance, stack[:len(f.typ.Params)])
			}
			if len(f.typ.Results) > 0 {
				stack[0] = result
			}
		}), valueTypes(f.typ.Params), valueTypes(f.typ.Results)).Export(f.name)
	}
	_, err := b.Instantiate(r.ctx)
	return err
}

func valueTypes(types []wasmbin.ValType) []api.ValueType {
	var all []api.ValueType
	for _, t := range types {
		all = append(all, api.ValueType(t))
	}
	return all
}

func (r *onWazero) start(compiled wazero.CompiledModule) (*Instance, error) {
	var stdout bytes.Buffer
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions().
		WithArgs(r.host.Args...).WithStdin(bytes.NewReader(r.host.Stdin)).WithStdout(&stdout)
	r.meter = fuel.NewMeter(fuel.MaxBudget, nil)
	mod, err := r.rt.InstantiateModule(r.ctx, compiled, config)
	if err != nil {
		return nil, err
	}

	r.instance = &Instance{
		call: func(name string, args []uint64) (uint64, error) { return r.call(mod, name, args) },
		memory: func() []byte {
			all, _ := mod.Memory().Read(0, mod.Memory().Size())
			return all
		},
		stdout: func() ([]byte, error) { return stdout.Bytes(), nil },
		used: func() int64 {
			if g := mod.ExportedGlobal(fuel.CounterExport); g != nil {
				return r.meter.Used(int64(g.Get()))
			}
			return 0
		},
		close: func() error { return mod.Close(r.ctx) },
	}
	return r.instance, nil
}

func (r *onWazero) call(mod api.Module, name string, args []uint64) (uint64, error) {
	f := mod.ExportedFunction(name)
	if f == nil {
		return 0, errNoExport
	}
	results, err := f.Call(r.ctx, args...)
	var exit *sys.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 0 {
		err = nil
	}
	if err != nil || len(results) == 0 {
		return 0, err
	}
	return results[0], nil
}
