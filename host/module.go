package host

import (
	"context"
	"fmt"

	"github.com/tetratelabs/wazero"

	"github.com/toolhost/toolhost/internal/fuel"
)

// Module is a compiled plugin. It is safe for concurrent use: each call has an
// instance of its own.
type Module struct {
	Info     *Info
	compiled wazero.CompiledModule
	program  *fuel.Program
}

// Compile checks a binary against the contract, rewrites it to be metered, and
// compiles it. What the contract or the compiler refuses is a [*ModuleError].
// A module of some megabytes takes a second or more, unless Config.CacheDir has
// it.
func (h *Host) Compile(ctx context.Context, wasm []byte) (*Module, error) {
	if err := h.enter(); err != nil {
		return nil, err
	}
	defer h.calls.Done()
	info, err := h.Inspect(wasm)
	if err != nil {
		return nil, err
	}
	program, err := fuel.Rewrite(wasm)
	if err != nil {
		return nil, &ModuleError{Part: "module", Err: err}
	}
	compiled, err := h.runtime.CompileModule(ctx, program.Wasm)
	if err != nil {
		return nil, &ModuleError{Part: "module", Err: fmt.Errorf("it does not compile: %w", err)}
	}
	program.Wasm = nil // compiled; not kept twice
	return &Module{Info: info, compiled: compiled, program: program}, nil
}

// Close frees the compiled code. No call may be running or start after it.
func (m *Module) Close(ctx context.Context) error { return m.compiled.Close(ctx) }
