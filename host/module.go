package host

import (
	"context"
	"fmt"
	"runtime"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/toolhost/toolhost/internal/fuel"
)

// Module is a compiled plugin. It is safe for concurrent use: each call has an
// instance of its own.
type Module struct {
	Info     *Info
	compiled wazero.CompiledModule
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
	bounded, err := boundTables(wasm)
	if err != nil {
		return nil, &ModuleError{Part: "module", Err: err}
	}
	program, err := fuel.Rewrite(bounded)
	if err != nil {
		return nil, &ModuleError{Part: "module", Err: err}
	}
	ctx = experimental.WithCompilationWorkers(ctx, runtime.GOMAXPROCS(0))
	compiled, err := h.runtime.CompileModule(ctx, program.Wasm)
	if err != nil {
		return nil, &ModuleError{Part: "module", Err: fmt.Errorf("it does not compile: %w", err)}
	}
	return &Module{Info: info, compiled: compiled}, nil
}

// Cost says what metering a module takes: a report for people, and for those
// who wonder why a file grew.
type Cost struct {
	Table     int     `json:"table"`     // version of the cost table
	Functions int     `json:"functions"` // defined in the module
	Operators int     `json:"operators"` // that cost fuel
	Loops     int     `json:"loops"`
	Charges   int     `json:"charges"` // places that count
	Checks    int     `json:"checks"`  // places that can end the call
	Growth    float64 `json:"growth"`  // of the file: 0.1 is a tenth larger
}

// Cost rewrites a binary as Compile would and reports on it. It does not
// compile.
func (h *Host) Cost(wasm []byte) (Cost, error) {
	p, err := fuel.Rewrite(wasm)
	if err != nil {
		return Cost{}, &ModuleError{Part: "module", Err: err}
	}
	s := p.Stats
	return Cost{s.CostVersion, s.Functions, s.Operators, s.Loops, s.Charges, s.Checks, float64(s.Rewritten)/float64(s.Original) - 1}, nil
}

// Close frees the compiled code. No call may be running or start after it.
func (m *Module) Close(ctx context.Context) error { return m.compiled.Close(ctx) }
