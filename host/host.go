// Package host compiles plugins and calls their tools. Each call runs in a clean
// sandbox with limits on fuel, memory, time and output, and with only the grants of
// its policy.
//
// A plugin is a core WebAssembly module that follows the contract of package abi. Before
// compiling, the host rewrites the module so that it meters itself (package internal/fuel).
// Each time the host checks how much fuel has been used, it also checks the deadline, and
// whether it should stop the call or is shutting down. Nothing about a plugin is trusted:
// not its code, nor its manifest, nor any pointer it passes.
package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/codecache"
	"github.com/toolhost/toolhost/host/internal/compiler"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/extism"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/sched"
	"github.com/toolhost/toolhost/host/internal/wasi"
	"github.com/toolhost/toolhost/internal/egress"
)

// Config configures a Host. The zero Config works.
type Config struct {
	// CacheDir is a folder for compiled code, shared between processes. If it is empty,
	// code is kept in memory only, and each process compiles each plugin again.
	CacheDir string
	// CacheSize is the maximum size of the compiled code in CacheDir, in bytes. The least
	// recently used code is removed first. 0 means DefaultCacheSize.
	CacheSize int64
	// PluginSize is the maximum size of a plugin's file, in bytes. 0 means
	// DefaultPluginSize. New refuses a negative value, or one above MaxPluginSize.
	PluginSize int64
	// Memory is the maximum amount of memory for all calls together, in bytes: linear
	// memory, overhead such as large tables, deep stacks, snapshots, large arguments and
	// results of running calls, and interpreted plugins. Compiled code does not count. A
	// call that needs more is refused, or ended when its memory grows, with an error that
	// matches [ErrHostMemory]. See also Shared. 0 means DefaultHostMemory.
	Memory int64
	// Calls is the maximum number of running calls of one module. Other calls wait, and
	// their time limit keeps running. A free slot goes to the client that holds the fewest
	// slots (see Call.Session), and among its calls to the one that came first. 0 means
	// DefaultCalls.
	Calls int
	// TotalCalls is the maximum number of running calls of all modules together, except
	// those with Call.Background. Other calls wait, as with Calls. 0 means
	// DefaultTotalCalls.
	TotalCalls int
	// Computing is the maximum number of guests that compute at the same time. Others wait,
	// and their time limit keeps running. Direct calls go before background runs, and
	// clients take turns. 0 means [runtime.GOMAXPROCS]. With a smaller number the rest of
	// the program never waits for a guest.
	Computing int
	// Shared keeps one client from taking everything: a client can then hold at most three
	// quarters of Memory, of Calls and of TotalCalls, but always at least one call. The
	// same holds for concurrent HTTP requests, per plugin and per host name. Without
	// Shared, one client can hold them all.
	Shared bool
	// Warm is the maximum number of clean instances that are kept for the next calls of one
	// module, and WarmFor is how long they are kept. 0 means DefaultWarm and
	// DefaultWarmFor. A negative Warm keeps none.
	Warm    int
	WarmFor time.Duration
	// Compiler is the path of a program that compiles each plugin in a child process with
	// limits, because a hostile module can crash a compiler or keep it busy. Its main
	// function must call [CompilerMain] first. It is usually [ThisProgram]. If it is empty,
	// plugins are compiled in this process, without limits on memory and time: a hostile
	// module of 100 kB can keep the process busy for minutes, or take all of its memory.
	Compiler string
	// CompileMemory and CompileTime limit the memory, in bytes, and the processor time
	// of Compiler for one plugin. Real time is limited to five times CompileTime. 0
	// means DefaultCompileMemory and DefaultCompileTime.
	CompileMemory int64
	CompileTime   time.Duration
	// Egress configures the HTTP requests of plugins.
	Egress Egress
	// Logger receives what plugins log, and internal errors. Nil discards both.
	Logger *slog.Logger
}

// These are the defaults of Config.
const (
	DefaultCacheSize  = 2 << 30  // bytes
	DefaultPluginSize = 64 << 20 // bytes
	DefaultHostMemory = 4 << 30  // bytes
	DefaultCalls      = 256
	DefaultTotalCalls = 64
	DefaultWarm       = 8
	DefaultWarmFor    = time.Minute

	DefaultCompileMemory = 2 << 30 // bytes
	DefaultCompileTime   = 2 * time.Minute
)

// MaxPluginSize is the largest value allowed for Config.PluginSize, in bytes.
const MaxPluginSize = 1 << 30

// Host compiles plugins and calls their tools. It is safe for concurrent use.
type Host struct {
	log      *slog.Logger
	fileSize int64            // see PluginSize
	code     *codecache.Cache // nil without a folder
	compiler string           // path of a program; empty compiles in this process
	limits   codecache.Limits
	refusals *codecache.Refusals
	imports  contract.Imports // functions that plugins can import from WASI and Extism

	ctx  context.Context // done when calls must end
	stop context.CancelCauseFunc

	ledger     *instance.Ledger
	slots      waitQueue        // slots of all calls except background runs
	newQueue   func() waitQueue // makes the queue for one module
	cpus       *sched.Scheduler
	operations map[string]guestcall.Operation // operations that guests can call, by name
	egress     *egress.Client

	building chan struct{} // semaphore of child processes that compile
	making   sync.Map      // chan struct{} by key: semaphores of code that is being looked up or built

	compiling     context.Context // done when compilations must end
	stopCompiling context.CancelFunc

	mu       sync.Mutex
	closed   bool
	engine   *engine // see memoryEngine; nil until needed
	calls    sync.WaitGroup
	freeing  sync.Once
	freed    error            // the error of freeing everything
	modules  map[*Module]bool // open modules, which hold memory that the runtime does not know of
	past     Counts           // counts of closed modules
	compiled CompileStats
}

// New returns a Host. Close it to free the compiled code.
func New(ctx context.Context, cfg Config) (*Host, error) {
	if cfg.PluginSize < 0 || cfg.PluginSize > MaxPluginSize {
		return nil, fmt.Errorf("the largest size of a plugin is %d bytes, expected at most %d", cfg.PluginSize, MaxPluginSize)
	}
	h := &Host{log: cfg.Logger, modules: map[*Module]bool{}, building: make(chan struct{}, buildsAtOnce)}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}

	perModule := limit(cfg.Calls, DefaultCalls, 1<<20)
	h.newQueue = func() waitQueue { return newWaitQueue(perModule, cfg.Shared, " of one plugin", "") }
	total := limit(cfg.TotalCalls, DefaultTotalCalls, 1<<20)
	h.slots = newWaitQueue(total, cfg.Shared, "", " on this host")
	h.cpus = sched.New(func() int { return cmp.Or(max(cfg.Computing, 0), runtime.GOMAXPROCS(0)) })
	h.ledger = instance.NewLedger(instance.Config{
		Memory: limit(cfg.Memory, DefaultHostMemory, 1<<50), Shared: cfg.Shared, Warm: max(cmp.Or(cfg.Warm, DefaultWarm), 0),
		WarmFor: limit(cfg.WarmFor, DefaultWarmFor, 1<<62),
	})

	var err error
	if h.egress, err = cfg.Egress.open(cfg.Shared); err != nil {
		return nil, err
	}
	h.fileSize = cmp.Or(cfg.PluginSize, DefaultPluginSize)
	h.operations, h.imports = guestcall.Operations(), extism.Imports()
	h.ctx, h.stop = context.WithCancelCause(context.Background())
	h.compiling, h.stopCompiling = context.WithCancel(context.Background())
	if err := h.openCompiler(cfg); err != nil {
		_ = h.Close(ctx)
		return nil, err
	}
	return h, nil
}

// PluginSize returns the maximum size of a plugin's file, in bytes.
func (h *Host) PluginSize() int64 { return h.fileSize }

// openCompiler opens the compiler and the code cache.
func (h *Host) openCompiler(cfg Config) (err error) {
	if h.imports[abi.ImportWASI], err = wasi.Imports(); err != nil {
		return err
	}
	h.limits = codecache.Limits{
		Memory: limit(cfg.CompileMemory, DefaultCompileMemory, 1<<50), Processor: limit(cfg.CompileTime, DefaultCompileTime, 1<<62),
	}
	if compiler.Supported {
		h.compiler = cfg.Compiler
	}

	cache := codecache.Config{Dir: cfg.CacheDir, Size: limit(cfg.CacheSize, DefaultCacheSize, 1<<50), Log: h.log,
		Runtime: func(ctx context.Context, cache wazero.CompilationCache) (wazero.Runtime, error) {
			return newEngine(ctx, compiler.Config(), cache)
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

// Close refuses new calls, cancels compilations, waits for running calls, and frees
// everything. When ctx is done it ends the running calls with errors that match
// [ErrClosed]. When Close returns, no goroutine and no instance is left.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.stopCompiling() // no call could use their results
	release := context.AfterFunc(ctx, func() { h.stop(ErrClosed) })
	h.calls.Wait()
	release()
	h.stop(ErrClosed)
	h.freeing.Do(func() {
		background := context.WithoutCancel(ctx)
		h.ledger.Close()
		h.egress.Close()
		h.forgetModules()
		h.freed = errors.Join(h.code.Close(background), h.engine.Close(background))
	})

	return h.freed
}

// Stats returns the statistics of all modules together.
func (h *Host) Stats() Stats {
	h.mu.Lock()
	counts := h.past // counts of closed modules
	for m := range h.modules {
		counts.add(m.tally.counts())
	}
	compiled := h.compiled
	h.mu.Unlock()

	s := stats(counts, h.ledger.Figures(), h.ledger.Memory)
	s.Compiled, s.Processors = compiled, h.cpus.Stats()
	return s
}

// enter registers a call; the caller ends it with h.calls.Done. A nested call of a
// registered call may enter a closed host.
func (h *Host) enter(awaited bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed && !awaited {
		return ErrClosed
	}
	h.calls.Add(1)
	return nil
}

// forgetModules frees the memory of modules that were not closed.
func (h *Host) forgetModules() {
	h.mu.Lock()
	left := slices.Collect(maps.Keys(h.modules))
	h.mu.Unlock()
	for _, m := range left {
		m.forget()
	}
}
