package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/codecache"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/extism"
	"github.com/toolhost/toolhost/host/internal/instance"
)

// Module is a compiled plugin. It is safe for concurrent use: each call has its own
// instance.
type Module struct {
	Info      *contract.Info
	Isolation Isolation

	host      *Host
	loaded    *codecache.Loaded
	base      *instance.Image // initial content of a new instance
	renews    bool            // whether it exports toolhost_restored
	account   *instance.Account
	hosted    map[string]api.Module // modules of host functions that an Extism plugin imports
	slots     waitQueue             // slots of its calls
	serial    waitQueue             // slots of its serial calls, by session
	tally     tally
	forgotten sync.Once // see forget

	mu      sync.Mutex
	startup string // why some view has no snapshot
}

// Compile checks a binary against the contract, rewrites it to be metered, and compiles it.
// It uses the zero [CompileOptions].
func (h *Host) Compile(ctx context.Context, wasm []byte) (*Module, error) {
	return h.CompileWith(ctx, wasm, CompileOptions{})
}

// CompileWith checks a binary against the contract, rewrites it to be metered, and
// compiles it. A module of several megabytes takes a second or more, unless its
// compiled code is in Config.CacheDir.
//
// If the contract or the compiler refuses the module, the error is a [*ModuleError]. It
// also matches [ErrCompileLimit] if the module exceeds Config.CompileMemory or CompileTime,
// and [ErrCompileCrash] if it crashes the compiler. From then on the host recognizes the
// module by its digest and refuses it immediately. When ctx is done, the error is the cause
// of ctx; after Close it is [ErrClosed].
func (h *Host) CompileWith(ctx context.Context, wasm []byte, opts CompileOptions) (*Module, error) {
	if err := h.enter(false); err != nil {
		return nil, err
	}
	defer h.calls.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.compiling, func() { cancel(ErrClosed) })()

	// Code and data are checked when they are rewritten; a cache hit saves that.
	started := time.Now()

	info, err := h.Scan(bytes.NewReader(wasm), int64(len(wasm)))
	if err != nil {
		return nil, err
	}
	info.Digest = contract.Digest(wasm)

	l, err := h.prepare(ctx, info.Digest, wasm, opts)
	if err != nil {
		return nil, contract.Blame(err)
	}
	h.countCompile(l.Found, time.Since(started))
	return h.openModule(ctx, info, l)
}

// Code identifies the compiled code of a module in Config.CacheDir. The zero Code
// identifies no code.
type Code struct {
	key  string
	info *contract.Info
}

// Code returns what [Host.Load] needs to load the module again after it is closed,
// without its binary. It is zero if the host does not keep the code.
func (m *Module) Code() Code {
	if m.loaded.Key == "" {
		return Code{}
	}
	return Code{m.loaded.Key, m.Info}
}

// Load loads a module from its compiled code alone. The error matches fs.ErrNotExist if the
// host no longer has the code, and is [ErrClosed] after Close.
func (h *Host) Load(ctx context.Context, code Code) (*Module, error) {
	if err := h.enter(false); err != nil {
		return nil, err
	}
	defer h.calls.Done()
	started := time.Now()

	var l *codecache.Loaded
	if code.key != "" && h.code.Ready(ctx) {
		l = h.code.Find(code.key)
	}
	if l == nil {
		return nil, fmt.Errorf("the compiled code: %w", fs.ErrNotExist)
	}
	h.countCompile(true, time.Since(started))
	return h.openModule(ctx, code.info, l)
}

// openModule is like newModule, but frees what was loaded if it fails.
func (h *Host) openModule(ctx context.Context, info *contract.Info, l *codecache.Loaded) (*Module, error) {
	m, err := h.newModule(info, l)
	if err != nil {
		err = errors.Join(err, l.Compiled.Close(ctx))
		if l.Free != nil {
			l.Free()
		}
		return nil, err
	}
	return m, nil
}

// Refused returns the error with which CompileWith refused the module with this digest
// earlier, or nil. A refused module is not compiled again until its bytes, the limits or
// the version of Toolhost change. Refusals are kept in Config.CacheDir, or else in memory.
func (h *Host) Refused(digest string) error {
	return contract.Blame(h.refusals.Recall(digest, h.limits))
}

// newModule returns the module of a prepared plugin. Its error matches
// ErrMemory.
func (h *Host) newModule(info *contract.Info, l *codecache.Loaded) (*Module, error) {
	a := h.ledger.Account(l.Overhead)
	base, err := a.NewImage(l.Image, l.At, uint64(info.MinBytes))
	if err != nil {
		return nil, err
	}
	l.Image = nil // copied
	m := &Module{
		host: h, Info: info, Isolation: isolation(info, l.Why), loaded: l, base: base,
		renews:  slices.Contains(info.Exports, abi.ExportRestored),
		account: a, slots: h.newQueue(), serial: newSerialQueue(),
	}

	if m.hosted, err = extism.InstantiateHosted(context.Background(), l.Runtime, info.HostFunctions); err != nil {
		m.closeHosted()
		a.Close()
		base.Close()
		return nil, err
	}

	h.mu.Lock()
	h.modules[m] = true
	h.mu.Unlock()
	return m, nil
}

// Stats returns the statistics of a module.
func (m *Module) Stats() Stats {
	s := stats(m.tally.counts(), m.account.Figures(), m.host.ledger.Memory)
	m.mu.Lock()
	defer m.mu.Unlock()
	s.Startup = m.startup
	return s
}

// KeepsCode reports whether compiled code outlives its modules, which makes
// compiling a module again fast.
func (h *Host) KeepsCode() bool { return h.code.Persistent() }

// Close frees the compiled code. No call may run during or after it.
func (m *Module) Close(ctx context.Context) error {
	m.forget()
	return m.loaded.Compiled.Close(ctx)
}

// closeHosted closes the modules of host functions.
func (m *Module) closeHosted() {
	for _, module := range m.hosted {
		_ = module.Close(context.Background())
	}
}

// forget frees everything but the code, once: a module and its host may be closed
// concurrently.
func (m *Module) forget() {
	m.forgotten.Do(func() {
		m.closeHosted()
		m.account.Close()
		m.base.Close()
		if m.loaded.Free != nil {
			m.loaded.Free()
		}

		m.host.mu.Lock()
		defer m.host.mu.Unlock()
		delete(m.host.modules, m) // until then the host waits for this
		m.host.past.add(m.tally.counts())
	})
}
