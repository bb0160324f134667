package host

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/tetratelabs/wazero"

	"github.com/toolhost/toolhost/host/internal/codecache"
	"github.com/toolhost/toolhost/host/internal/compiler"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

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
