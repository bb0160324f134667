package host

import (
	"context"
	"errors"
	"runtime"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// features are those of the rewriter, but for exceptions: wazero copies the
// guest's whole stack for each try_table that is entered, so that recursion
// through one takes host memory by the square of its depth, outside the limit
// of the call. Measured: 287 MiB at a depth of 3,000, for 1.5 million units.
const features = wasmbin.Features &^ experimental.CoreFeaturesExceptionHandling

// compiler and interpreter are the configurations of runtimes.
func compiler() wazero.RuntimeConfig    { return configured(wazero.NewRuntimeConfig()) }
func interpreter() wazero.RuntimeConfig { return configured(wazero.NewRuntimeConfigInterpreter()) }

func configured(c wazero.RuntimeConfig) wazero.RuntimeConfig {
	return c.WithCoreFeatures(features).WithDebugInfoEnabled(false)
}

// engine is a runtime with the cache of compiled code that it closes.
type engine struct {
	wazero.Runtime
	cache wazero.CompilationCache
}

// newEngine returns a runtime that has all that plugins import. It keeps the
// cache, also where it fails.
func (h *Host) newEngine(ctx context.Context, config wazero.RuntimeConfig, cache wazero.CompilationCache) (*engine, error) {
	e := &engine{wazero.NewRuntimeWithConfig(ctx, config.WithCompilationCache(cache)), cache}
	if err := h.instantiateImports(ctx, e); err != nil {
		return nil, errors.Join(err, e.close(ctx))
	}
	return e, nil
}

func (e *engine) close(ctx context.Context) error {
	if e == nil {
		return nil
	}
	return errors.Join(e.Runtime.Close(ctx), e.cache.Close(ctx))
}

// compile has the runtime compile a module, with all processors if it can.
func (e *engine) compile(ctx context.Context, wasm []byte) (wazero.CompiledModule, error) {
	return e.CompileModule(experimental.WithCompilationWorkers(ctx, runtime.GOMAXPROCS(0)), wasm)
}
