package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"

	"github.com/tetratelabs/wazero"

	"github.com/toolhost/toolhost/host/internal/codecache"
	"github.com/toolhost/toolhost/host/internal/compiler"
)

// CompileOptions are the options for compiling one module. The zero value is
// right for a module that a caller waits for.
type CompileOptions struct {
	// Interpret runs the module in an interpreter instead of compiling it. Its calls
	// are about 10 to 100 times slower and nest at most 2,000 deep. Functions with more
	// than 1,000 locals are refused. The interpreter's form of the module counts
	// against Config.Memory until the module is closed.
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

// enterBuild waits until nobody else looks up or builds the code of that key. The
// caller calls leave.
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

// CompilerMain lets a program be Config.Compiler. Call it first in main. It returns
// at once unless the process was started to compile. In that case it compiles one
// plugin, with limits and few rights, and exits.
func CompilerMain() {
	compiler.Main()
	compilerMain.Store(true)
}

var compilerMain atomic.Bool // CompilerMain was called

// ThisProgram returns the path of the running program, for Config.Compiler. On Linux
// that is the file it was started from, even after an update has replaced it. It is
// empty if the path is unknown, or if [CompilerMain] was not called: the program
// would start itself over and over.
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
