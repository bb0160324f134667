// Package instance keeps the instances of modules, and accounts for their memory:
// the initial content of a memory (Image), the linear memory itself (Memory), the
// state of a module that has started up (Snapshot), and the clean, warm instances
// that wait for the next call (Ledger). It knows nothing of calls.
package instance

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// The limits that a guest can meet. ErrHostMemory is that of the Ledger, and
// matches ErrMemory too.
var (
	ErrMemory     = errors.New("out of memory")
	ErrHostMemory = fmt.Errorf("%w on this host", ErrMemory)
)

// Stop is what host code panics with to end a guest: wazero unwinds the guest and
// returns it as the error of the call.
type Stop struct{ Reason error }

func (s *Stop) Error() string { return s.Reason.Error() }

// Unwrap returns the reason.
func (s *Stop) Unwrap() error { return s.Reason }

// Kind is what memory is used for.
type Kind int

// The kinds.
const (
	Linear  Kind = iota // memories of instances, with their overhead
	Images              // what instances start with
	Stacks              // of guests that recurse deeply
	Buffers             // arguments and results of calls
	kinds
)

// Figures are what a module holds, or all of them.
type Figures struct {
	Held      [kinds]int64 // bytes by Kind
	Peak      int64        // the most bytes it held
	Instances int
	Idle      int // instances that wait for a call
}

// Total is how many bytes are held.
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
	Memory  int64 // bytes that all modules may hold together
	Shared  bool  // the running calls of one client may hold three quarters of it
	Warm    int   // instances of a module that wait for calls
	WarmFor time.Duration

	HeapOnly bool   // keep all memory on Go's heap, as on systems where none is mapped
	Pagemap  string // file that says which pages were written to; empty is Linux's
}

// Ledger accounts for the memory of all modules of a host, and keeps what makes
// calls quick: snapshots and warm instances. It is safe for concurrent use.
type Ledger struct {
	Config
	pagemap *pagemap

	// reclaiming is held while something that is kept is given up: its memory is
	// neither free then, nor is it kept. It is locked before mu.
	reclaiming sync.Mutex
	freeing    sync.RWMutex // read-locked by each goroutine that gives memory back

	mu        sync.Mutex
	figures   Figures
	clients   map[string]*Client // those that have calls, or hold something
	snapshots []*Snapshot        // in any order
	uses      int64              // of all snapshots
	timer     *time.Timer
	expiring  sync.WaitGroup // what timer started or will start
	closed    bool
}

// NewLedger returns a Ledger. Close it.
func NewLedger(cfg Config) *Ledger {
	return &Ledger{Config: cfg, pagemap: openPagemap(cmp.Or(cfg.Pagemap, pagemapPath)), clients: map[string]*Client{}}
}

// Account is what one module holds of a Ledger.
type Account struct {
	ledger   *Ledger
	Overhead uint64 // bytes that each instance takes in addition to its memory

	// The mutex of the ledger guards the rest.
	figures   Figures
	snapshots map[string]*Snapshot // by view
}

// Account returns the account of a module whose instances take overhead bytes in
// addition to their memory.
func (l *Ledger) Account(overhead uint64) *Account {
	return &Account{ledger: l, Overhead: overhead, snapshots: map[string]*Snapshot{}}
}

// Figures returns what all modules hold.
func (l *Ledger) Figures() Figures {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.figures
}

// Figures returns what the module holds.
func (a *Account) Figures() Figures {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	return a.figures
}

// Take pays for n bytes of nobody's call. Its error matches ErrHostMemory.
func (a *Account) Take(k Kind, n uint64) error { return a.Payer(nil).Take(k, n) }

// Give gives n bytes of nobody's call back.
func (a *Account) Give(k Kind, n uint64) { a.Payer(nil).Give(k, n) }

// instances counts instances that were made, or discarded.
func (a *Account) instances(n int) {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	a.ledger.figures.Instances += n
	a.figures.Instances += n
}

// waiting counts instances that wait for calls. The mutex must be held.
func (a *Account) waiting(n int) {
	a.ledger.figures.Idle += n
	a.figures.Idle += n
}

// roomy reports whether there is memory to keep things for later.
func (l *Ledger) roomy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.figures.Total() <= l.Memory/2
}

// freeLater has memory given back by another goroutine.
func (l *Ledger) freeLater(free func()) {
	l.freeing.RLock()
	go func() {
		defer l.freeing.RUnlock()
		free()
	}()
}

// awaitFrees waits until what freeLater was given is free.
func (l *Ledger) awaitFrees() {
	l.freeing.Lock()
	l.freeing.Unlock() //lint:ignore SA2001 it only waits
}

// reclaim gives up the warm instance that waits longest, or else the snapshot that
// was used longest ago. It is false if there is nothing left. l.reclaiming must be held.
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

// oldest returns the warm instance that has waited longest, or nil. l.mu must be
// held, as for all below.
func (l *Ledger) oldest() (in *Instance) {
	for _, s := range l.snapshots {
		if len(s.idle) > 0 && (in == nil || s.idle[0].since.Before(in.since)) {
			in = s.idle[0]
		}
	}
	return in
}

// leastRecent is the snapshot used longest ago of those that match; nil if none does.
func (l *Ledger) leastRecent(match func(*Snapshot) bool) (least *Snapshot) {
	for _, s := range l.snapshots {
		if match(s) && (least == nil || s.used < least.used) {
			least = s
		}
	}
	return least
}

// remove takes out an instance that waits.
func (l *Ledger) remove(in *Instance) {
	s := in.Snapshot
	i := slices.Index(s.idle, in)
	s.idle = slices.Delete(s.idle, i, i+1)
	in.account.waiting(-1)
}
