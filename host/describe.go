package host

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
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
// can be compiled. A plugin written in Go takes 5 to 12 million units.
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
	return h.DescribeWith(ctx, wasm, DescribeOptions{})
}

// DescribeOptions are the options for describing one plugin. The zero value suits a host
// that loads it.
type DescribeOptions struct {
	Compile CompileOptions // of a plugin that must be compiled
	// Fuel is the budget in units. 0 is 500 million. A build tool that writes the
	// manifest into the file can allow more, which a script with large libraries needs.
	Fuel int64
}

// DescribeWith is Describe with options.
func (h *Host) DescribeWith(ctx context.Context, wasm []byte, opts DescribeOptions) ([]byte, error) {
	if err := h.enter(false); err != nil {
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

	opts.Fuel = cmp.Or(opts.Fuel, describeFuel)
	manifest, err := h.describeInterpreted(ctx, info, wasm, min(opts.Fuel, interpretFuel))
	if ctx.Err() == nil && unfit(err) {
		return h.describeCompiled(ctx, wasm, opts)
	}
	return manifest, err
}

func (h *Host) describeCompiled(ctx context.Context, wasm []byte, opts DescribeOptions) ([]byte, error) {
	m, err := h.CompileWith(ctx, wasm, opts.Compile)
	if err != nil {
		return nil, err
	}
	defer m.Close(ctx)
	return m.describe(ctx, cmp.Or(opts.Fuel, describeFuel), describeTimeout, false)
}

// describeInterpreted describes in a runtime that is closed after it. See unfit for
// its error.
func (h *Host) describeInterpreted(ctx context.Context, info *Info, wasm []byte, units int64) ([]byte, error) {
	places := h.interpreting
	if len(wasm) > interpretAlone {
		places = h.interpretingLarge
	}
	if err := enterSemaphore(ctx, places); err != nil {
		return nil, err
	}
	defer func() { <-places }()

	l, err := h.interpreted(ctx, wasm, describedCode)
	if err != nil {
		return nil, moduleError(err)
	}
	m, err := h.newModule(info, l)
	if err != nil {
		l.Free()
		return nil, err
	}
	defer m.Close(context.WithoutCancel(ctx))
	return m.describe(ctx, units, interpretTimeout, true)
}

// How many plugins are interpreted at a time: of those up to interpretAlone bytes
// interpretedAtOnce, of larger ones a single one. One written in Go takes a hundred
// megabytes, and with the larger packages of Go's library over three hundred.
const (
	interpretedAtOnce = 4
	interpretAlone    = 6 << 20
)

// describe runs toolhost_describe. See unfit for its error in an interpreter.
func (m *Module) describe(ctx context.Context, units int64, timeout time.Duration, interpreted bool) ([]byte, error) {
	req := &Call{Tool: abi.ExportDescribe, Policy: Policy{Fuel: units, Output: abi.MaxManifest, Timeout: timeout}}
	c, err := m.host.begin(ctx, m, req)
	if err != nil {
		return nil, &CallError{Tool: req.Tool, Err: err}
	}
	defer c.end()
	c.describing, c.answer.describing = true, true

	code, err := c.run()
	if interpreted && unfit(err) {
		return nil, err
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

// errUnfit says that interpreting a plugin takes too much of what an interpreter has.
var errUnfit = errors.New("it cannot be interpreted")

// unfit reports whether a run was ended by a limit that is lower in an
// interpreter. The memory of the host is one: what the interpreter takes of it
// would be there for the plugin.
func unfit(err error) bool {
	if err == nil {
		return false
	}
	for _, limit := range []error{errUnfit, ErrFuel, ErrHostMemory, context.DeadlineExceeded} {
		if errors.Is(err, limit) {
			return true
		}
	}
	message, _, _ := strings.Cut(err.Error(), "\nwasm stack trace:\n")
	return strings.HasSuffix(message, "wasm error: stack overflow")
}

// interpreted prepares a plugin within those limits for an interpreter of its own. What the interpreter keeps of it counts as memory of the host until the
// plugin is freed. The error matches errUnfit if it cannot be interpreted.
func (h *Host) interpreted(ctx context.Context, wasm []byte, most codeLimit) (*codecache.Loaded, error) {
	program, m, err := compiler.Rewrite(wasm)
	if err != nil {
		return nil, err
	}
	size, err := interpretedSize(m, most)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}

	account := h.ledger.Account(0)
	if err := account.Take(instance.Linear, size); err != nil {
		return nil, err
	}
	e, err := newEngine(ctx, compiler.InterpreterConfig(), wazero.NewCompilationCache())
	if err != nil {
		account.Give(instance.Linear, size)
		return nil, err
	}
	free := sync.OnceFunc(func() {
		_ = e.Close(context.WithoutCancel(ctx))
		if size >= interpretLarge {
			runtime.GC() // what the next one takes would else come on top of it
		}
		account.Give(instance.Linear, size)
	})

	l, err := e.compile(ctx, program)
	if err != nil {
		free()
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	l.Free = free
	return l, nil
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

// A codeLimit is how much is interpreted.
type codeLimit struct {
	code int    // bytes of code and locals together
	heap uint64 // bytes that the interpreter may take for it
}

// What is interpreted to be described, and to be called. Code of many functions takes
// less memory than code of one: the second limit keeps a hostile plugin from using the
// first one to the full.
var (
	describedCode      = codeLimit{16 << 20, 2 << 30}
	maxInterpretedCode = codeLimit{64 << 20, math.MaxUint64}
)

// interpretedSize is the heap that an interpreter takes for a module. Its error is a
// [*ModuleError] that matches errUnfit if the module exceeds most.
func interpretedSize(m *wasmbin.Module, most codeLimit) (uint64, error) {
	refuse := func(format string, args ...any) (uint64, error) {
		return 0, &ModuleError{Part: "module", Err: fmt.Errorf("%w: "+format, append([]any{errUnfit}, args...)...)}
	}

	total, largest := 0, 0
	for i, c := range m.Codes {
		locals := 0
		for _, g := range c.Locals {
			locals += int(g.Count)
		}
		if locals > localsMost {
			return refuse("function %d of its code has %d locals, and at most %d are allowed", i, locals, localsMost)
		}
		size := len(c.Body) + locals
		total += size
		largest = max(largest, size)
		if total > most.code {
			return refuse("it has more than %d bytes of code", most.code)
		}
	}

	declared := len(m.Codes) + len(m.Types)
	heap := uint64(total)*interpretBytes + uint64(largest)*makingBytes + uint64(declared)*declaredBytes
	if heap > most.heap {
		return refuse("its code takes more than %d bytes of memory, with a function of %d bytes", most.heap, largest)
	}
	return heap, nil
}
