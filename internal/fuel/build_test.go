package fuel

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Value types and function types, short, for hand-made modules.
const (
	i32 = wasmbin.I32
	i64 = wasmbin.I64
)

type vals = []wasmbin.ValType

func sig(params, results vals) wasmbin.FuncType {
	return wasmbin.FuncType{Params: params, Results: results}
}

// code concatenates bytes, operations, indices and byte slices into the body of
// a function, its final end included.
func code(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch v := p.(type) {
		case wasmbin.Op:
			b = wasmbin.AppendOp(b, v)
		case int:
			b = wasmbin.AppendS64(b, int64(v))
		case uint32:
			b = wasmbin.AppendU32(b, v)
		case byte:
			b = append(b, v)
		case []byte:
			b = append(b, v...)
		default:
			panic(p)
		}
	}

	return append(b, byte(wasmbin.OpEnd))
}

// fn is one function of a hand-made module.
type fn struct {
	name   string // exported under it unless empty
	sig    wasmbin.FuncType
	locals []wasmbin.LocalGroup
	body   []byte
}

// module makes a module of functions, each with a type of its own, after change
// has added what else it needs.
func module(fns []fn, change func(*wasmbin.Module)) []byte {
	m := &wasmbin.Module{}
	if change != nil {
		change(m)
	}

	imported := uint32(m.ImportCount(wasmbin.KindFunc))
	for i, f := range fns {
		m.Functions = append(m.Functions, uint32(len(m.Types)))
		m.Types = append(m.Types, f.sig)
		m.Codes = append(m.Codes, wasmbin.Code{Locals: f.locals, Body: f.body})
		if f.name != "" {
			m.Exports = append(m.Exports, wasmbin.Export{Name: f.name, Index: imported + uint32(i)})
		}
	}

	return m.Encode()
}

// guest is an instance that runs under a meter.
type guest struct {
	mod   api.Module
	meter *Meter
}

// newRuntime returns a runtime with the shared features and a refill function
// that asks *meter.
func newRuntime(t testing.TB, meter **Meter) wazero.Runtime {
	return newRuntimeWith(t, wazero.NewRuntimeConfig().WithCoreFeatures(wasmbin.Features), meter)
}

func newRuntimeWith(t testing.TB, config wazero.RuntimeConfig, meter **Meter) wazero.Runtime {
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, config)
	t.Cleanup(func() { rt.Close(ctx) })
	_, err := rt.NewHostModuleBuilder(ImportModule).NewFunctionBuilder().
		WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) {
			left, err := (*meter).Refill(int64(stack[0]))
			if err != nil {
				panic(err)
			}
			stack[0] = uint64(left)
		}), []api.ValueType{api.ValueTypeI64}, []api.ValueType{api.ValueTypeI64}).
		Export(ImportName).Instantiate(ctx)
	require.NoError(t, err)

	return rt
}

// instantiate rewrites and instantiates a module.
func instantiate(t testing.TB, wasm []byte, meter *Meter, host func(wazero.Runtime)) *guest {
	t.Helper()
	p, err := rewrite(false, wasm)
	require.NoError(t, err)
	return start(t, p, meter, host)
}

// start instantiates a program.
func start(t testing.TB, p *program, meter *Meter, host func(wazero.Runtime)) *guest {
	t.Helper()
	g := &guest{meter: meter}
	rt := newRuntime(t, &g.meter)
	if host != nil {
		host(rt)
	}
	var err error
	g.mod, err = rt.InstantiateWithConfig(context.Background(), p.Wasm, wazero.NewModuleConfig().WithName("guest"))
	require.NoError(t, err)
	return g
}

func (g *guest) counter() api.MutableGlobal {
	return g.mod.ExportedGlobal(CounterExport).(api.MutableGlobal)
}

// call calls an export under a meter of its own and returns its results, the
// fuel it used and how it ended.
func (g *guest) call(budget int64, name string, args ...uint64) ([]uint64, int64, error) {
	g.meter = NewMeter(budget, nil)
	return g.run(name, args...)
}

// run calls an export under the meter that is there.
func (g *guest) run(name string, args ...uint64) ([]uint64, int64, error) {
	g.counter().Set(0)
	res, err := g.mod.ExportedFunction(name).Call(context.Background(), args...)
	left := int64(g.counter().Get())
	if err == nil {
		err = g.meter.Finish(left)
	}
	return res, g.meter.Used(left), err
}

// buildGo compiles a Go program to a WASI reactor and returns its bytes.
func buildGo(t testing.TB, source string) []byte {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module guest\n\ngo 1.26\n"), 0o644))
	out := filepath.Join(dir, "guest.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-o", out, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off", "GOFLAGS=")
	msg, err := cmd.CombinedOutput()
	require.NoError(t, err, string(msg))
	wasm, err := os.ReadFile(out)
	require.NoError(t, err)

	return wasm
}

func withWASI(t testing.TB) func(wazero.Runtime) {
	return func(rt wazero.Runtime) {
		_, err := wasi_snapshot_preview1.Instantiate(context.Background(), rt)
		require.NoError(t, err)
	}
}
