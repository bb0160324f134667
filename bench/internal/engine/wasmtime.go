package engine

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/bytecodealliance/wasmtime-go/v39"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

func wasmtimeLoader(how mode) func([]byte, Host) (*Program, error) {
	return func(wasm []byte, host Host) (*Program, error) {
		r, err := newWasmtime(how, host)
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

// onWasmtime is an engine with one module, of which there is one instance at a time.
type onWasmtime struct {
	how      mode
	host     Host
	dir      string // of standard input and output
	engine   *wasmtime.Engine
	linker   *wasmtime.Linker
	instance *Instance
}

func newWasmtime(how mode, host Host) (*onWasmtime, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	config := wasmtime.NewConfig()
	config.SetConsumeFuel(how == metered)
	config.SetEpochInterruption(how == epoch)
	r := &onWasmtime{how: how, host: host, dir: dir, engine: wasmtime.NewEngineWithConfig(config)}
	r.linker = wasmtime.NewLinker(r.engine)
	return r, errors.Join(r.linker.DefineWasi(), os.WriteFile(r.path("stdin"), host.Stdin, 0o600))
}

func (r *onWasmtime) path(name string) string { return filepath.Join(r.dir, name) }

func (r *onWasmtime) close() {
	r.linker.Close()
	r.engine.Close()
	_ = os.RemoveAll(r.dir)
}

func (r *onWasmtime) load(wasm []byte) (*Program, error) {
	functions, err := imports(wasm)
	if err != nil {
		return nil, err
	}
	for module, all := range functions {
		for _, f := range all {
			if err := r.define(module, f); err != nil {
				return nil, err
			}
		}
	}

	start := time.Now()
	module, err := wasmtime.NewModule(r.engine, wasm)
	if err != nil {
		return nil, err
	}
	return &Program{
		Compile: time.Since(start),
		start:   func() (*Instance, error) { return r.start(module) },
		close:   func() { module.Close(); r.close() },
	}, nil
}

func (r *onWasmtime) define(module string, f function) error {
	call := r.host.Functions[module+"."+f.name]
	typ := wasmtime.NewFuncType(wasmtimeTypes(f.typ.Params), wasmtimeTypes(f.typ.Results))
	return r.linker.FuncNew(module, f.name, typ, func(_ *wasmtime.Caller, vals []wasmtime.Val) ([]wasmtime.Val, *wasmtime.Trap) {
		args := make([]uint64, len(vals))
		for i, v := range vals {
			args[i] = bits(v)
		}
		result := uint64(0)
		if call != nil {
			result = call(r.instance, args)
		}

		var results []wasmtime.Val
		for _, t := range f.typ.Results {
			results = append(results, value(t, result))
		}
		return results, nil
	})
}

func wasmtimeTypes(types []wasmbin.ValType) []*wasmtime.ValType {
	var all []*wasmtime.ValType
	for _, t := range types {
		all = append(all, wasmtime.NewValType(value(t, 0).Kind()))
	}
	return all
}

// value is a value of a numeric type.
func value(t wasmbin.ValType, b uint64) wasmtime.Val {
	switch t {
	case wasmbin.I64:
		return wasmtime.ValI64(int64(b))
	case wasmbin.F32:
		return wasmtime.ValF32(math.Float32frombits(uint32(b)))
	case wasmbin.F64:
		return wasmtime.ValF64(math.Float64frombits(b))
	}
	return wasmtime.ValI32(int32(b))
}

func bits(v wasmtime.Val) uint64 {
	switch v.Kind() {
	case wasmtime.KindI64:
		return uint64(v.I64())
	case wasmtime.KindF32:
		return uint64(math.Float32bits(v.F32()))
	case wasmtime.KindF64:
		return math.Float64bits(v.F64())
	}
	return uint64(uint32(v.I32()))
}

func (r *onWasmtime) start(module *wasmtime.Module) (*Instance, error) {
	store := wasmtime.NewStore(r.engine)
	switch r.how {
	case metered:
		if err := store.SetFuel(1 << 62); err != nil {
			return nil, err
		}
	case epoch:
		store.SetEpochDeadline(1 << 40)
	}
	config := wasmtime.NewWasiConfig()
	config.SetArgv(r.host.Args)
	if err := errors.Join(config.SetStdinFile(r.path("stdin")), config.SetStdoutFile(r.path("stdout"))); err != nil {
		return nil, err
	}
	store.SetWasi(config)
	instance, err := r.linker.Instantiate(store, module)
	if err != nil {
		return nil, err
	}

	r.instance = &Instance{
		call: func(name string, args []uint64) (uint64, error) { return call(store, instance, name, args) },
		memory: func() []byte {
			return instance.GetExport(store, "memory").Memory().UnsafeData(store)
		},
		stdout: func() ([]byte, error) { return os.ReadFile(r.path("stdout")) },
		used:   func() int64 { return 0 },
		close:  func() error { store.Close(); return nil },
	}
	return r.instance, nil
}

func call(store *wasmtime.Store, instance *wasmtime.Instance, name string, args []uint64) (uint64, error) {
	f := instance.GetFunc(store, name)
	if f == nil {
		return 0, errNoExport
	}
	var vals []any
	for i, t := range f.Type(store).Params() {
		switch t.Kind() {
		case wasmtime.KindI32:
			vals = append(vals, int32(args[i]))
		case wasmtime.KindI64:
			vals = append(vals, int64(args[i]))
		default:
			return 0, fmt.Errorf("%s: a parameter of type %v", name, t.Kind())
		}
	}

	result, err := f.Call(store, vals...)
	var exit *wasmtime.Error
	if errors.As(err, &exit) {
		if code, ok := exit.ExitStatus(); ok && code == 0 {
			return 0, nil
		}
	}
	if err != nil {
		return 0, err
	}

	switch v := result.(type) {
	case int32:
		return uint64(uint32(v)), nil
	case int64:
		return uint64(v), nil
	}
	return 0, nil
}
