package host

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/tetratelabs/wazero"

	"github.com/toolhost/toolhost/host/internal/codecache"
	"github.com/toolhost/toolhost/host/internal/compiler"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Limits of an interpreted module. An interpreter also pushes a function's locals at
// each call, which fuel does not cover, and allows 2,000 nested calls.
const (
	maxInterpreted       = 64 << 20 // bytes of code and locals together
	maxInterpretedLocals = 1000     // locals of one function
)

// An interpreter keeps words for each operator and each local: some 30 bytes of heap
// per byte of compiler-generated code, and at most interpretedBytes. While it builds
// them, it holds those of the current function up to three times.
const (
	interpretedBytes = 80
	makingBytes      = 160 // additional bytes for the code of the largest function
	declaredBytes    = 300 // per function or type, without code
)

// interpreted prepares a plugin for an interpreter of its own. The interpreter's memory
// counts as memory of the host until the plugin is freed.
func (h *Host) interpreted(ctx context.Context, wasm []byte) (*codecache.Loaded, error) {
	program, m, err := compiler.Rewrite(wasm)
	if err != nil {
		return nil, err
	}
	size, err := interpretedSize(m)
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

// interpretedSize returns the heap that an interpreter needs for a module, in bytes. If
// a module exceeds a limit, the error is a [*ModuleError].
func interpretedSize(m *wasmbin.Module) (uint64, error) {
	refuse := func(format string, args ...any) (uint64, error) {
		return 0, &contract.ModuleError{Part: "module", Err: fmt.Errorf("it cannot be interpreted: "+format, args...)}
	}

	total, largest := 0, 0
	for i, c := range m.Codes {
		locals := c.NumLocals()
		if locals > maxInterpretedLocals {
			return refuse("function %d of its code has %d locals, and at most %d are allowed", i, locals, maxInterpretedLocals)
		}
		size := len(c.Body) + locals
		total += size
		largest = max(largest, size)
		if total > maxInterpreted {
			return refuse("it has more than %d bytes of code", maxInterpreted)
		}
	}

	declared := len(m.Codes) + len(m.Types)
	return uint64(total)*interpretedBytes + uint64(largest)*makingBytes + uint64(declared)*declaredBytes, nil
}
