// Package instance manages the instances of modules, and accounts for their
// memory: the initial content of a memory (Image), the linear memory itself
// (Memory), the state of a module that has started up (Snapshot), and the clean,
// warm instances that wait for the next call (Ledger). It does not depend on
// calls.
package instance

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// The errors of a guest that reached a memory limit. ErrHostMemory means the limit of
// the Ledger, and also matches ErrMemory.
var (
	ErrMemory     = errors.New("out of memory")
	ErrHostMemory = fmt.Errorf("%w on this host", ErrMemory)
)

// Stop is the panic value with which host code ends a guest: wazero unwinds the
// guest and returns it as the error of the call.
type Stop struct{ Reason error }

func (s *Stop) Error() string { return s.Reason.Error() }

// Unwrap returns the reason.
func (s *Stop) Unwrap() error { return s.Reason }

// Catch runs host code that may end the call, outside the guest. The error is the [Stop]
// that the code panicked with.
func Catch(f func() int32) (code int32, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *Stop:
			err = r
		default:
			panic(r)
		}
	}()
	return f(), nil
}

// Kind says what memory is used for.
type Kind int

// The kinds.
const (
	Linear  Kind = iota // linear memories of instances, with their overhead
	Images              // initial content of instances
	Stacks              // stacks of deeply recursive guests
	Buffers             // arguments and results of calls
	kinds
)

// Figures are the memory statistics of one module or of all.
type Figures struct {
	Held      [kinds]int64 // bytes held, by Kind
	Peak      int64        // highest total so far
	Instances int
	Idle      int // warm instances
}

// Total returns how many bytes are held.
func (f *Figures) Total() (n int64) {
	for _, held := range f.Held {
		n += held
	}
	return n
}

func (f *Figures) add(k Kind, n int64) {
	f.Held[k] += n
	f.Peak = max(f.Peak, f.Total())
}

// Config configures a Ledger.
type Config struct {
	Memory  int64 // maximum memory of all modules together, in bytes
	Shared  bool  // whether the running calls of one client may hold at most three quarters of Memory
	Warm    int   // maximum number of warm instances per module
	WarmFor time.Duration

	HeapOnly bool   // whether to keep all memory on Go's heap, as on systems without mappings
	Pagemap  string // file that reports written pages; empty means Linux's /proc/self/pagemap
}

// Ledger accounts for the memory of all modules of a host, and keeps snapshots
// and warm instances, which make calls fast. It is safe for concurrent use.
type Ledger struct {
	Config
	pagemap *pagemap

	// reclaiming is held during an eviction, when the memory is neither free nor
	// in use. It is locked before mu.
	reclaiming sync.Mutex
	freeing    sync.RWMutex // read-locked by each goroutine that frees memory

	mu        sync.Mutex
	figures   Figures
	clients   map[string]*Client // clients with calls or memory
	snapshots []*Snapshot        // in any order
	uses      int64              // number of uses of all snapshots
	timer     *time.Timer
	expiring  sync.WaitGroup // goroutines that timer started or will start
	closed    bool
}

// NewLedger returns a Ledger. Close it after use.
func NewLedger(cfg Config) *Ledger {
	return &Ledger{Config: cfg, pagemap: openPagemap(cmp.Or(cfg.Pagemap, pagemapPath)), clients: map[string]*Client{}}
}

// Account counts the memory of one module.
type Account struct {
	ledger   *Ledger
	Overhead uint64 // bytes that each instance takes in addition to its memory

	// The mutex of the ledger guards the rest.
	figures   Figures
	snapshots map[string]*Snapshot // snapshots by view
}

// Account returns the account of a module whose instances take overhead bytes in
// addition to their memory.
func (l *Ledger) Account(overhead uint64) *Account {
	return &Account{ledger: l, Overhead: overhead, snapshots: map[string]*Snapshot{}}
}

// Figures returns the statistics of all modules.
func (l *Ledger) Figures() Figures {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.figures
}

// Figures returns the statistics of the module.
func (a *Account) Figures() Figures {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	return a.figures
}

// Take pays for n bytes that belong to no client. The error matches ErrHostMemory.
func (a *Account) Take(k Kind, n uint64) error { return a.Payer(nil).Take(k, n) }

// Give gives back n bytes that belong to no client.
func (a *Account) Give(k Kind, n uint64) { a.Payer(nil).Give(k, n) }

// instances counts new instances, or discarded ones if n is negative.
func (a *Account) instances(n int) {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	a.ledger.figures.Instances += n
	a.figures.Instances += n
}

// waiting counts warm instances. The mutex must be held.
func (a *Account) waiting(n int) {
	a.ledger.figures.Idle += n
	a.figures.Idle += n
}

// roomy reports whether there is enough memory to keep things for later.
func (l *Ledger) roomy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.figures.Total() <= l.Memory/2
}

// freeLater frees memory on another goroutine.
func (l *Ledger) freeLater(free func()) {
	l.freeing.RLock()
	go func() {
		defer l.freeing.RUnlock()
		free()
	}()
}

// awaitFrees waits until everything given to freeLater is free.
func (l *Ledger) awaitFrees() {
	l.freeing.Lock()
	l.freeing.Unlock() //lint:ignore SA2001 it only waits
}

// reclaim evicts the warm instance that has waited longest, or else the least recently
// used snapshot. It reports false if there is none. l.reclaiming must be held.
func (l *Ledger) reclaim() bool {
	l.mu.Lock()
	in := l.oldest()
	var s *Snapshot
	if in != nil {
		l.remove(in)
	} else {
		s = l.leastRecent(func(s *Snapshot) bool { return s.users == 0 })
	}
	l.mu.Unlock()

	switch {
	case in != nil:
		in.Discard()
	case s != nil:
		l.drop(s)
	default:
		return false
	}
	return true
}

// oldest returns the warm instance that has waited longest, or nil. l.mu must be held,
// as for the other methods below.
func (l *Ledger) oldest() (in *Instance) {
	for _, s := range l.snapshots {
		if len(s.idle) > 0 && (in == nil || s.idle[0].since.Before(in.since)) {
			in = s.idle[0]
		}
	}
	return in
}

// leastRecent returns the least recently used snapshot that matches, or nil.
func (l *Ledger) leastRecent(match func(*Snapshot) bool) (least *Snapshot) {
	for _, s := range l.snapshots {
		if match(s) && (least == nil || s.used < least.used) {
			least = s
		}
	}
	return least
}

// remove takes out a warm instance.
func (l *Ledger) remove(in *Instance) {
	s := in.Snapshot
	i := slices.Index(s.idle, in)
	s.idle = slices.Delete(s.idle, i, i+1)
	in.account.waiting(-1)
}
