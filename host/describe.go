package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/codecache"
	"github.com/toolhost/toolhost/host/internal/compiler"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// The budget of a describe: enough for the start of a large runtime. The fuel
// is less than a second of computing, and the time what a busy machine may take
// for it.
const (
	describeFuel    = 500_000_000
	describeTimeout = time.Minute
)

// What of it is spent on interpreting: in about the time in which most plugins
// can be compiled. A plugin made by Go takes 5 to 12 million units.
const (
	interpretFuel    = 50_000_000
	interpretTimeout = 10 * time.Second
)

// Describe runs toolhost_describe of a plugin in the sandbox, with a small budget
// and no grants, and returns the manifest it writes. Its errors are those of
// [Host.Compile] and [Host.Call], or match [ErrNoManifest] if the module has no such
// export or writes nothing.
//
// It interprets most plugins, because compiling one takes longer. A plugin that
// exceeds the interpreter's limits is compiled and starts again. The outcome is the
// same either way.
func (h *Host) Describe(ctx context.Context, wasm []byte) ([]byte, error) {
	return h.DescribeWith(ctx, wasm, CompileOptions{})
}

// DescribeWith is Describe with options for a plugin that must be compiled.
func (h *Host) DescribeWith(ctx context.Context, wasm []byte, opts CompileOptions) ([]byte, error) {
	if err := h.enter(); err != nil {
		return nil, err
	}
	defer h.calls.Done()
	info, err := h.Scan(bytes.NewReader(wasm), int64(len(wasm)))
	if err != nil {
		return nil, err
	}
	if !info.Describe {
		return nil, &ModuleError{"export", abi.ExportDescribe, ErrNoManifest}
	}

	manifest, err := h.describeInterpreted(ctx, info, wasm)
	if errors.Is(err, errUnfit) {
		return h.describeCompiled(ctx, wasm, opts)
	}
	return manifest, err
}

func (h *Host) describeCompiled(ctx context.Context, wasm []byte, opts CompileOptions) ([]byte, error) {
	m, err := h.CompileWith(ctx, wasm, opts)
	if err != nil {
		return nil, err
	}
	defer m.Close(ctx)
	return m.describe(ctx, describeFuel, describeTimeout)
}

// describeInterpreted describes in a runtime that is closed after it. Its error
// may match errUnfit.
func (h *Host) describeInterpreted(ctx context.Context, info *Info, wasm []byte) ([]byte, error) {
	select {
	case h.interpreting <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-h.interpreting }()

	p, err := h.interpreted(ctx, wasm, interpretable{describedCode})
	if unfit(err) {
		return nil, errUnfit
	}
	if err != nil {
		return nil, moduleError(err)
	}
	m, err := h.newModule(info, p)
	if err != nil {
		p.release()
		if unfit(err) {
			return nil, errUnfit
		}
		return nil, err
	}
	defer m.Close(context.WithoutCancel(ctx))
	m.interpreted = true
	return m.describe(ctx, interpretFuel, interpretTimeout)
}

// interpretedAtOnce is how many plugins are interpreted at a time: one made by Go
// takes a hundred megabytes.
const interpretedAtOnce = 4

// describe runs toolhost_describe.
func (m *Module) describe(ctx context.Context, units int64, timeout time.Duration) ([]byte, error) {
	req := &Call{Tool: abi.ExportDescribe, Policy: Policy{Fuel: units, Output: abi.MaxManifest, Timeout: timeout}}
	c, err := m.host.begin(ctx, m, req, describing)
	if err != nil {
		return nil, &CallError{Tool: req.Tool, Err: err}
	}
	defer c.end()
	code, err := c.run()
	if m.interpreted && ctx.Err() == nil && unfit(err) {
		return nil, errUnfit
	}

	r, err := c.outcome(code, err)
	switch {
	case err != nil:
		return nil, err
	case r.Kind != abi.Success:
		return nil, &CallError{Tool: req.Tool, Err: fmt.Errorf("%w: %s", ErrABI, r.Error)}
	case c.answer.manifest == nil:
		return nil, &CallError{Tool: req.Tool, Err: ErrNoManifest}
	}

	return c.answer.manifest, nil
}

// unfit reports whether a run was ended by a limit that is lower in an
// interpreter. The memory of the host is one: what the interpreter takes of it
// would be there for the plugin.
func unfit(err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, errUnfit), errors.Is(err, ErrFuel), errors.Is(err, ErrHostMemory), errors.Is(err, context.DeadlineExceeded):
		return true
	}
	message, _, _ := strings.Cut(err.Error(), "\nwasm stack trace:\n")
	return strings.HasSuffix(message, "wasm error: stack overflow")
}

// interpreted prepares a plugin for an interpreter of its own. What that keeps of
// it is taken from the memory of the host until the plugin is released. The error
// matches errUnfit if it is not interpretable.
func (h *Host) interpreted(ctx context.Context, wasm []byte, limits interpretable) (*prepared, error) {
	program, m, err := compiler.Rewrite(wasm)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}

	size, err := limits.bytes(m)
	if err != nil {
		return nil, err
	}
	room := h.ledger.Account(0)
	if err := room.Take(instance.Linear, size); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnfit, err)
	}

	e, err := h.newEngine(ctx, compiler.InterpreterConfig(), wazero.NewCompilationCache())
	if err != nil {
		room.Give(instance.Linear, size)
		return nil, err
	}
	free := sync.OnceFunc(func() {
		_ = e.Close(context.WithoutCancel(ctx))
		if size >= interpretLarge {
			runtime.GC() // what the next one takes would else come on top of it
		}
		room.Give(instance.Linear, size)
	})

	compiled, err := e.compile(ctx, program.Wasm)
	if err != nil {
		free()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, compiler.RefuseCompile(err)
	}
	program.Wasm = nil
	return &prepared{Loaded: codecache.Loaded{Program: program, Compiled: compiled, Runtime: e}, free: free}, nil
}

// release gives back what is the module's alone.
func (p *prepared) release() {
	if p.free != nil {
		p.free()
	}
}

// An interpreter has words for each operator and each local: some 30 bytes of heap
// for a byte of code that a compiler made, and at most interpretBytes; while it
// makes them those of the function it is at are there up to three times. It also
// pushes the locals of a function whenever that is called, which no fuel pays for,
// and lets 2,000 calls be nested.
const (
	interpretBytes = 80
	makingBytes    = 160      // more for the code of the largest function
	declaredBytes  = 300      // of a function or a type, without code
	interpretLarge = 16 << 20 // bytes of heap that are not left to the next collection
	localsMost     = 1000     // of one function
)

// Bytes of code and locals together that are interpreted: to be described, and
// to be called.
const (
	describedCode      = 8 << 20
	maxInterpretedCode = 64 << 20
)

// interpretable says what is interpreted.
type interpretable struct{ code int }

// bytes is the heap that an interpreter takes for a module. Its error matches
// errUnfit if the module is more than is interpreted.
func (l interpretable) bytes(m *wasmbin.Module) (uint64, error) {
	total, largest := 0, 0
	for i, c := range m.Codes {
		locals := 0
		for _, g := range c.Locals {
			locals += int(g.Count)
		}
		if locals > localsMost {
			return 0, fmt.Errorf("%w: function %d of its code has %d locals, and at most %d are allowed", errUnfit, i, locals, localsMost)
		}
		size := len(c.Body) + locals
		total += size
		largest = max(largest, size)
		if total > l.code {
			return 0, fmt.Errorf("%w: it has more than %d bytes of code", errUnfit, l.code)
		}
	}

	declared := len(m.Codes) + len(m.Types)
	return uint64(total)*interpretBytes + uint64(largest)*makingBytes + uint64(declared)*declaredBytes, nil
}
