package host_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// BenchmarkCall measures a call as a whole, its fresh instance included, and
// reports how much longer it takes than wazero needs for the same module as it
// was built: not rewritten, not limited, its imports doing as little as they can.
func BenchmarkCall(b *testing.B) {
	b.Run("tiny", func(b *testing.B) { compare(b, echo.wasm(), "tool", `{"text":"hello"}`) })
	b.Run("wordcount", func(b *testing.B) {
		file, err := wordcount.build()
		require.NoError(b, err)
		wasm, err := os.ReadFile(file)
		require.NoError(b, err)
		compare(b, wasm, "wordcount", `{"text":"`+strings.Repeat("lorem ipsum ", 1000)+`"}`)
	})
}

// compare makes both kinds of calls in turn, so that both see the same machine.
func compare(b *testing.B, wasm []byte, tool, args string) {
	h := newHost(b, nil)
	m := compile(b, h, wasm)
	raw := newRaw(b, wasm, tool, args)
	var ours, theirs time.Duration
	for b.Loop() {
		begin := time.Now()
		r, err := h.Call(context.Background(), m, host.Call{Traits: host.Traits{Plugin: "bench"}, Tool: tool, Args: []byte(args)})
		ours += time.Since(begin)
		if err != nil || r.Kind != abi.Success {
			b.Fatal(r.Kind, r.Error, err)
		}
		begin = time.Now()
		result := raw.call()
		theirs += time.Since(begin)
		if len(result) == 0 {
			b.Fatal("no result")
		}
	}
	b.ReportMetric(0, "ns/op") // of both: says nothing
	b.ReportMetric(float64(ours.Nanoseconds())/float64(b.N), "ns/call")
	b.ReportMetric(float64(theirs.Nanoseconds())/float64(b.N), "ns/raw")
	b.ReportMetric(float64(ours)/float64(theirs), "ratio")
}

// raw runs a plugin with wazero alone.
type raw struct {
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	fields   map[uint32]string
}

// resultKey finds where the result of a call goes in its context.
type resultKey struct{}

func newRaw(b *testing.B, wasm []byte, tool, args string) *raw {
	ctx := context.Background()
	r := &raw{
		runtime: wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(wasmbin.Features)),
		fields:  map[uint32]string{uint32(abi.FieldArgs): args, uint32(abi.FieldTool): tool, uint32(abi.FieldContext): "{}"},
	}
	b.Cleanup(func() { r.runtime.Close(ctx) })
	module, err := wasmbin.Scan(bytes.NewReader(wasm), int64(len(wasm)), abi.SectionScript)
	require.NoError(b, err)
	script, _ := module.Custom(abi.SectionScript)
	r.fields[uint32(abi.FieldScript)] = string(script)
	_, err = r.runtime.NewHostModuleBuilder(abi.Version).
		NewFunctionBuilder().WithFunc(func(_ context.Context, m api.Module, field, ptr, size uint32) int32 {
		into, _ := m.Memory().Read(ptr, size)
		copy(into, r.fields[field])
		return int32(len(r.fields[field]))
	}).Export(abi.ImportRead).
		NewFunctionBuilder().WithFunc(func(ctx context.Context, m api.Module, _, ptr, size uint32) int32 {
		data, _ := m.Memory().Read(ptr, size)
		result := ctx.Value(resultKey{}).(*[]byte)
		*result = append(*result, data...)
		return 0
	}).Export(abi.ImportWrite).
		NewFunctionBuilder().WithFunc(func(_, _ float64, _, _ uint32) int32 { return 0 }).Export(abi.ImportProgress).
		NewFunctionBuilder().WithFunc(func(_, _, _, _ uint32) int32 { return -1 }).Export(abi.ImportCall).
		NewFunctionBuilder().WithFunc(func(_, _, _, _ uint32) int32 { return -1 }).Export(abi.ImportStart).
		Instantiate(ctx)
	require.NoError(b, err)
	wasi_snapshot_preview1.MustInstantiate(ctx, r.runtime)
	r.compiled, err = r.runtime.CompileModule(ctx, wasm)
	require.NoError(b, err)
	return r
}

// call makes a call in a new instance, and returns a copy of the result.
func (r *raw) call() (result []byte) {
	m, err := r.instance()
	if err != nil {
		return nil
	}
	defer m.Close(context.Background())
	if _, err := m.ExportedFunction(abi.ExportInvoke).Call(context.WithValue(context.Background(), resultKey{}, &result)); err != nil {
		return nil
	}
	return result
}

func (r *raw) instance() (api.Module, error) {
	return r.runtime.InstantiateModule(context.Background(), r.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions(abi.ExportInitialize))
}

// pooled makes calls in one instance, which keeps what they leave in it.
func (r *raw) pooled(b *testing.B) func() []byte {
	m, err := r.instance()
	require.NoError(b, err)
	invoke := m.ExportedFunction(abi.ExportInvoke)
	answer := make([]uint64, 1)
	return func() (result []byte) {
		if err := invoke.CallWithStack(context.WithValue(context.Background(), resultKey{}, &result), answer); err != nil {
			return nil
		}
		return result
	}
}
