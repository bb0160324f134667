package host

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tetratelabs/wazero"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/fuel"
)

// Module is a compiled plugin. It is safe for concurrent use: each call has an
// instance of its own.
type Module struct {
	Info      *Info
	Isolation Isolation

	host     *Host
	compiled wazero.CompiledModule
	base     *image // what a new instance starts with
	globals  int    // mutable ones
	renews   bool   // it exports toolhost_restored
	account  *account
	slots    chan struct{} // as many as there may be calls at a time

	mu        sync.Mutex
	snapshots map[string]*shared // by view
	startup   string             // why there is none for some view
	turns     map[string]*turn   // by session
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
	state, err := h.prepare(info, wasm)
	if err != nil {
		return nil, &ModuleError{Part: "module", Err: err}
	}
	compiled, err := h.compile(ctx, state.Wasm)
	if err != nil {
		return nil, &ModuleError{Part: "module", Err: fmt.Errorf("it does not compile: %w", err)}
	}
	m := &Module{
		host: h, Info: info, Isolation: isolation(info, state.Why),
		compiled: compiled, base: newImage(state.Image, uint64(info.MinBytes)), globals: state.Globals,
		renews:  slices.Contains(info.Exports, abi.ExportRestored),
		account: &account{pool: &h.pool}, slots: make(chan struct{}, h.instances),
		snapshots: map[string]*shared{}, turns: map[string]*turn{},
	}
	h.mu.Lock()
	h.modules[m] = true
	h.mu.Unlock()
	return m, nil
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
func (m *Module) Close(ctx context.Context) error {
	m.forget()
	return m.compiled.Close(ctx)
}

// forget gives back what the module holds beside its code.
func (m *Module) forget() {
	m.host.mu.Lock()
	delete(m.host.modules, m)
	m.host.mu.Unlock()
	m.forgetSnapshots()
	m.base.close()
}
