package host

import (
	"context"
	"errors"

	"github.com/tetratelabs/wazero"

	"github.com/toolhost/toolhost/host/internal/compiler"
)

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
		return nil, errors.Join(err, e.Close(ctx))
	}
	return e, nil
}

// Close closes the runtime and its cache. It does nothing for nil.
func (e *engine) Close(ctx context.Context) error {
	if e == nil {
		return nil
	}
	return errors.Join(e.Runtime.Close(ctx), e.cache.Close(ctx))
}

// compile has the runtime compile a module, with all processors if it can.
func (e *engine) compile(ctx context.Context, wasm []byte) (wazero.CompiledModule, error) {
	return e.CompileModule(compiler.WithWorkers(ctx), wasm)
}
