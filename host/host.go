// Package host compiles plugins and calls their tools, each call in a clean
// sandbox with limits on fuel, memory, time and output, and with nothing
// granted that its policy does not name.
//
// A plugin is a core WebAssembly module that keeps the contract of package abi.
// The host rewrites it before it is compiled (package internal/fuel), so that
// it counts what it executes: that one check is where fuel, deadline, stop and
// shutdown arrive. No plugin can outrun it, and none is trusted: not its code,
// nor its manifest, nor a pointer it passes.
package host

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Config configures a Host. The zero Config works.
type Config struct {
	// CacheDir is a folder for compiled code, shared between processes. Empty
	// keeps it in memory only, so that each process compiles each plugin anew.
	CacheDir string
	// Logger gets what plugins log, and what went wrong inside. Nil discards.
	Logger *slog.Logger
}

// Host compiles plugins and calls their tools. It is safe for concurrent use.
type Host struct {
	log     *slog.Logger
	runtime wazero.Runtime
	cache   wazero.CompilationCache
	wasi    map[string]signature // what the WASI module exports

	ctx  context.Context // done when calls have to end
	stop context.CancelCauseFunc

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
}

// features are those of the rewriter, but for exceptions: wazero copies the
// guest's whole stack for each try_table that is entered, so that recursion
// through one takes host memory by the square of its depth, outside the limit
// of the call. Measured: 287 MiB at a depth of 3,000, for 1.5 million units.
const features = wasmbin.Features &^ experimental.CoreFeaturesExceptionHandling

// New returns a Host. Close it to free the compiled code.
func New(ctx context.Context, cfg Config) (*Host, error) {
	h := &Host{log: cfg.Logger, cache: wazero.NewCompilationCache()}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	if cfg.CacheDir != "" {
		cache, err := wazero.NewCompilationCacheWithDir(cfg.CacheDir)
		if err != nil {
			return nil, fmt.Errorf("compile cache: %w", err)
		}
		h.cache = cache
	}
	h.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithCoreFeatures(features).
		WithDebugInfoEnabled(false).
		WithCompilationCache(h.cache))
	h.ctx, h.stop = context.WithCancelCause(context.Background())
	if err := h.instantiateImports(ctx); err != nil {
		_ = h.Close(ctx)
		return nil, err
	}
	return h, nil
}

// Close refuses new calls, waits for the running ones, and frees everything.
// When ctx is done first, it ends them: each returns an error that matches
// [ErrClosed]. No goroutine and no instance is left when it returns.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	release := context.AfterFunc(ctx, func() { h.stop(ErrClosed) })
	h.calls.Wait()
	release()
	h.stop(ErrClosed)
	background := context.WithoutCancel(ctx)
	err := h.runtime.Close(background)
	if cerr := h.cache.Close(background); err == nil {
		err = cerr
	}
	return err
}

// enter counts a call in; the caller leaves with h.calls.Done.
func (h *Host) enter() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	h.calls.Add(1)
	return nil
}
