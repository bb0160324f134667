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
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/toolhost/toolhost/host/internal/codecache"
	"github.com/toolhost/toolhost/host/internal/compiler"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/sched"
)

// Config configures a Host. The zero Config works.
type Config struct {
	// CacheDir is a folder for compiled code, shared between processes. Empty keeps
	// it in memory only, so that each process compiles each plugin anew.
	CacheDir string
	// CacheSize is how many bytes of compiled code CacheDir may hold. The least
	// recently used is removed. 0 is DefaultCacheSize.
	CacheSize int64
	// Memory is how many bytes all calls and what is kept for them may take together:
	// linear memory, overhead such as large tables, deep stacks, snapshots, large
	// arguments and results while a call runs, and what an interpreter makes of a
	// plugin (see Describe). A call that would need more is refused, or ended where
	// it grows, with an error that matches [ErrHostMemory]. Compiled code does not
	// count. 0 is DefaultHostMemory.
	Memory int64
	// Calls is how many calls of one module may run at a time; others wait, and
	// their time runs. A free slot goes to the client that holds the fewest (see
	// Call.Session), and to its calls in order. 0 is DefaultCalls.
	Calls int
	// TotalCalls is how many calls of all modules may run at a time, those with
	// Call.Background excluded; others wait likewise. 0 is DefaultTotalCalls.
	TotalCalls int
	// Computing is how many guests compute at a time; others wait, and their time
	// runs. Direct calls go before background runs, and clients alternate. 0 is as
	// many as Go uses processors, see [runtime.GOMAXPROCS]. With fewer than that the
	// rest of the program never waits for a guest.
	Computing int
	// Shared says that several clients are expected. One client can then hold three
	// quarters of Calls and of TotalCalls, at least one, so that a slot is free for
	// the next client. Otherwise one client can hold them all. Package server shares
	// its background runs likewise.
	Shared bool
	// Warm is how many clean instances of one module wait for calls, and WarmFor
	// how long. 0 is DefaultWarm and DefaultWarmFor. Negative keeps none.
	Warm    int
	WarmFor time.Duration
	// Compiler is a program to compile in: each plugin in a process of its own, with
	// limits, since a hostile module can crash a compiler or keep it busy for ever.
	// Its main function calls [CompilerMain] first; most often it is this program,
	// see [ThisProgram]. Empty compiles in this process, which only the bounds on a
	// module's structure protect.
	Compiler string
	// CompileMemory and CompileTime are how much memory, in bytes, and processor time
	// Compiler may take for one plugin, and five times as much real time. 0 is
	// DefaultCompileMemory and DefaultCompileTime.
	CompileMemory int64
	CompileTime   time.Duration
	// Logger gets what plugins log, and internal errors. Nil discards.
	Logger *slog.Logger
}

// What a zero Config means.
const (
	DefaultCacheSize  = 2 << 30 // bytes
	DefaultHostMemory = 4 << 30 // bytes
	DefaultCalls      = 256
	DefaultTotalCalls = 64
	DefaultWarm       = 8
	DefaultWarmFor    = time.Minute

	DefaultCompileMemory = 2 << 30 // bytes
	DefaultCompileTime   = 2 * time.Minute
)

// Host compiles plugins and calls their tools. It is safe for concurrent use.
type Host struct {
	log      *slog.Logger
	engine   *engine          // compiles, and keeps code in memory only
	code     *codecache.Cache // nil without a folder
	compiler string           // path of a program; empty compiles in this process
	limits   codecache.Limits
	refusals *codecache.Refusals
	wasi     map[string]signature // what the WASI module exports

	ctx  context.Context // done when calls have to end
	stop context.CancelCauseFunc

	ledger     *instance.Ledger
	slots      waitQueue        // for all calls but background runs
	newQueue   func() waitQueue // for the calls of one module
	cpus       *sched.Scheduler
	operations map[string]operation // that guests call by name

	interpreting chan struct{} // semaphore: plugins that are interpreted
	building     chan struct{} // semaphore: child processes that compile

	compiling     context.Context // done when nothing is to be compiled any more
	stopCompiling context.CancelFunc

	mu      sync.Mutex
	closed  bool
	calls   sync.WaitGroup
	freeing sync.Once
	freed   error // of freeing
	// modules are those that were not closed: they hold memory that the
	// runtime knows nothing of.
	modules  map[*Module]bool
	past     Counts // of modules that were closed
	compiled CompileStats
}

// New returns a Host. Close it to free the compiled code.
func New(ctx context.Context, cfg Config) (*Host, error) {
	h := &Host{log: cfg.Logger, modules: map[*Module]bool{}, interpreting: make(chan struct{}, interpretedAtOnce), building: make(chan struct{}, buildsAtOnce)}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}

	perModule := limit(cfg.Calls, DefaultCalls, 1<<20)
	h.newQueue = func() waitQueue { return newWaitQueue(perModule, cfg.Shared, " of one plugin", "") }
	total := limit(cfg.TotalCalls, DefaultTotalCalls, 1<<20)
	h.slots = newWaitQueue(total, cfg.Shared, "", " on this host")
	h.cpus = sched.New(func() int { return cmp.Or(max(cfg.Computing, 0), runtime.GOMAXPROCS(0)) })
	h.ledger = instance.NewLedger(instance.Config{
		Memory: limit(cfg.Memory, DefaultHostMemory, 1<<50), Warm: max(cmp.Or(cfg.Warm, DefaultWarm), 0),
		WarmFor: limit(cfg.WarmFor, DefaultWarmFor, 1<<62),
	})

	h.operations = operations()
	h.ctx, h.stop = context.WithCancelCause(context.Background())
	h.compiling, h.stopCompiling = context.WithCancel(context.Background())
	if err := h.openCompiler(ctx, cfg); err != nil {
		_ = h.Close(ctx)
		return nil, err
	}
	return h, nil
}

// openCompiler opens what compiles, and what keeps code.
func (h *Host) openCompiler(ctx context.Context, cfg Config) (err error) {
	if h.engine, err = h.newEngine(ctx, compiler.Config(), wazero.NewCompilationCache()); err != nil {
		return err
	}
	h.limits = codecache.Limits{
		Memory: limit(cfg.CompileMemory, DefaultCompileMemory, 1<<50), Processor: limit(cfg.CompileTime, DefaultCompileTime, 1<<62),
	}
	if compiler.Supported {
		h.compiler = cfg.Compiler
	}

	cache := codecache.Config{Dir: cfg.CacheDir, Size: limit(cfg.CacheSize, DefaultCacheSize, 1<<50), Log: h.log,
		Runtime: func(ctx context.Context, cache wazero.CompilationCache) (codecache.Runtime, error) {
			return h.newEngine(ctx, compiler.Config(), cache)
		}}
	if cfg.CacheDir != "" {
		if h.code, err = codecache.Open(cache); err != nil {
			return err
		}
	}

	h.refusals = h.code.Refusals()
	if h.code == nil && h.compiler != "" {
		h.code = codecache.Private(cache)
	}
	return nil
}

// Close refuses new calls, ends compilations, waits for the calls that run, and
// frees everything. If ctx ends first, it ends the calls: each returns an error that
// matches [ErrClosed]. No goroutine and no instance is left when it returns.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.stopCompiling() // no call could come of it
	release := context.AfterFunc(ctx, func() { h.stop(ErrClosed) })
	h.calls.Wait()
	release()
	h.stop(ErrClosed)
	h.freeing.Do(func() {
		background := context.WithoutCancel(ctx)
		h.ledger.Close()
		h.forgetModules()
		h.freed = errors.Join(h.code.Close(background), h.engine.Close(background))
	})

	return h.freed
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

// forgetModules gives back what the modules hold that were not closed.
func (h *Host) forgetModules() {
	h.mu.Lock()
	left := slices.Collect(maps.Keys(h.modules))
	h.mu.Unlock()
	for _, m := range left {
		m.forget()
	}
}
