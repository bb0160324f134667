package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/toolhost/toolhost/host/internal/codecache"
	"github.com/toolhost/toolhost/host/internal/compiler"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// CompileOptions are the options for compiling one module. The zero value is
// right for a module that a caller waits for.
type CompileOptions struct {
	// Interpret runs the module in an interpreter instead of compiling it. Calls of its
	// tools are about 10 to 100 times slower, and its functions can nest calls at most
	// 2,000 deep. Functions with more than 1,000 locals are refused. The memory that the
	// interpreter needs for the module counts against Config.Memory until the module is
	// closed.
	Interpret bool
	// LowPriority makes the compiler process yield to other work, where the system
	// supports that. It needs Config.Compiler.
	LowPriority bool
}

// prepare rewrites and compiles a plugin, unless the cache has the result. Plugins
// that differ only in their scripts or manifests share their code, which is compiled
// once. A working cache is not required. A plugin that failed to compile before is
// refused again, by its digest, for the same reason.
func (h *Host) prepare(ctx context.Context, digest string, wasm []byte, opts CompileOptions) (*codecache.Loaded, error) {
	if opts.Interpret {
		return h.interpreted(ctx, wasm)
	}
	key := compiler.Key(wasm)
	leave, err := h.enterBuild(ctx, key)
	if err != nil {
		return nil, err
	}
	if opts.LowPriority {
		leave() // a call that needs the code must not wait for a low-priority build
	} else {
		defer leave()
	}

	ready := h.code.Ready(ctx)
	if ready {
		if l := h.code.Find(key); l != nil {
			return l, nil
		}
	}

	if err := h.refusals.Recall(digest, h.limits); err != nil {
		return nil, err
	}

	l, err := h.build(ctx, ready, key, wasm, opts.LowPriority)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	h.refusals.Remember(digest, err, h.limits)
	return l, err
}

// enterBuild waits until nobody else is looking up or building the code with this key.
// The caller must call leave when it is done.
func (h *Host) enterBuild(ctx context.Context, key string) (leave func(), err error) {
	slot, _ := h.making.LoadOrStore(key, make(chan struct{}, 1))
	if err := enterSemaphore(ctx, slot.(chan struct{})); err != nil {
		return nil, err
	}
	return func() { <-slot.(chan struct{}) }, nil
}

// build compiles a plugin that is not in the cache: in a child process if the
// host has a compiler, and otherwise in this process. ready reports that the
// cache can be used.
func (h *Host) build(ctx context.Context, ready bool, key string, wasm []byte, low bool) (*codecache.Loaded, error) {
	switch {
	case h.compiler != "" && !ready:
		return nil, errors.New("compiled code cannot be stored anywhere: see the log")
	case h.compiler != "":
		if err := enterSemaphore(ctx, h.building); err != nil {
			return nil, err
		}
		defer func() { <-h.building }()
		child := compiler.Process{Path: h.compiler, Memory: h.limits.Memory, Processor: h.limits.Processor}
		l, err := h.code.Store(key, func(dir string) error { return child.Build(ctx, dir, wasm, low) })
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%w: %w", ErrSpace, err)
		}
		return l, err
	case !ready || !h.code.Stores():
		return h.buildInMemory(ctx, wasm)
	}

	l, err := h.code.Store(key, func(dir string) error { return compiler.Build(ctx, dir, wasm) })
	if _, refused := errors.AsType[*compiler.Error](err); err == nil || ctx.Err() != nil || refused {
		return l, err
	}
	h.log.Warn("compiled code is not kept", "key", key, "reason", err)
	return h.buildInMemory(ctx, wasm)
}

// buildsAtOnce is the number of child processes that compile at a time. Each of
// them uses all processors. The second one keeps a slow module from holding up
// all others.
const buildsAtOnce = 2

func enterSemaphore(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// buildInMemory compiles into the memory of this process.
func (h *Host) buildInMemory(ctx context.Context, wasm []byte) (*codecache.Loaded, error) {
	program, _, err := compiler.Rewrite(wasm)
	if err != nil {
		return nil, err
	}
	e, err := h.memoryEngine(ctx)
	if err != nil {
		return nil, err
	}
	return e.compile(ctx, program)
}

// memoryEngine returns the engine that keeps code in memory only. Most hosts with a
// cache never need it.
func (h *Host) memoryEngine(ctx context.Context) (_ *engine, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.engine == nil {
		h.engine, err = newEngine(context.WithoutCancel(ctx), compiler.Config(), wazero.NewCompilationCache())
	}
	return h.engine, err
}

// engine is a runtime and the code cache that it closes.
type engine struct {
	wazero.Runtime
	cache wazero.CompilationCache
}

// newEngine returns a runtime with everything that plugins import. It owns the cache,
// even if it fails.
func newEngine(ctx context.Context, config wazero.RuntimeConfig, cache wazero.CompilationCache) (*engine, error) {
	e := &engine{wazero.NewRuntimeWithConfig(ctx, config.WithCompilationCache(cache)), cache}
	if err := instantiateImports(ctx, e); err != nil {
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

// compile compiles a program in memory, with all processors if the runtime supports
// that.
func (e *engine) compile(ctx context.Context, program *compiler.Program) (*codecache.Loaded, error) {
	compiled, err := e.CompileModule(compiler.WithWorkers(ctx), program.Wasm)
	if err != nil {
		return nil, compiler.RefuseCompile(err)
	}
	program.Wasm = nil
	return &codecache.Loaded{Program: program, Compiled: compiled, Runtime: e}, nil
}

// countCompile counts a module that was compiled.
func (h *Host) countCompile(cached bool, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if cached {
		h.compiled.Cached++
	} else {
		h.compiled.Anew++
	}
	h.compiled.Time += took
}

// CompilerMain lets the running program serve as Config.Compiler. Call it first in main. It
// returns at once unless this process was started to compile a plugin. In that case it
// compiles the plugin, with limits and few rights, and exits.
func CompilerMain() {
	compiler.Main()
	compilerMain.Store(true)
}

var compilerMain atomic.Bool // whether CompilerMain was called

// ThisProgram returns the path of the running program, for Config.Compiler. On Linux the
// path leads to the file that the program was started from, even after an update has
// replaced that file. The path is empty if it is unknown, or if [CompilerMain] was not
// called: the program would then start itself over and over.
func ThisProgram() string {
	if !compilerMain.Load() {
		return ""
	}
	if runtime.GOOS == "linux" {
		if _, err := os.Stat("/proc/self/exe"); err == nil {
			return "/proc/self/exe"
		}
	}

	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
}

// Limits of an interpreted module. An interpreter also pushes a function's locals at
// each call, which fuel does not cover, and allows 2,000 nested calls.
const (
	maxInterpreted       = 64 << 20 // bytes of code and locals together
	maxInterpretedLocals = 1000     // locals in one function
)

// An interpreter keeps machine words for each operator and each local: some 30 bytes of
// heap per byte of compiler-generated code, and at most interpretedBytes. While it
// builds them, it can hold up to three copies of the words of the current function.
const (
	interpretedBytes = 80
	makingBytes      = 160 // additional bytes per byte of the largest function
	declaredBytes    = 300 // bytes per function or type, besides its code
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
