package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// An active is a run that has not ended. The database has what is needed to
// begin again after the death of the process.
type active struct {
	mu    sync.Mutex // held while the run is being changed
	seq   int64
	size  int64 // of its record, see row; changes under mu
	saved int64 // bytes of its checkpoint; likewise

	// The registry's lock guards these.
	run     engine.Run // without payload; its Beat is newer than the stored one
	log     *logFile   // of the attempt this process started
	worker  *worker    // who claimed it or works on it; nil: nobody
	lease   *lease     // the current one
	stored  bool       // the database has it
	gone    bool       // it has ended, or was not stored
	permit  bool       // it holds a permit
	changed bool       // its Beat is not stored yet
}

// A registry has the active runs, and all that is kept in memory only: who works
// on what, permits, the queue, and when schedules are due.
type registry struct {
	mu      sync.Mutex
	runs    map[string]*active
	waiting []*active // queued runs that nobody has claimed, in the order of submission
	worker  *worker   // who has the engine; nil: nobody
	quota   engine.Quota
	holding map[place]map[string]bool // ids of runs that hold permits
	owners  map[string]int            // how many, by owner
	notices []string                  // runs whose notice is pending and nobody's yet
	due     map[string]time.Time      // enabled schedules that will fire

	closed bool
	calls  sync.WaitGroup // changes of runs in progress
}

// A place is where the permits of a session are counted.
type place struct {
	session string
	parked  bool
}

func newRegistry() *registry {
	return &registry{
		runs: make(map[string]*active), due: make(map[string]time.Time),
		holding: make(map[place]map[string]bool), owners: make(map[string]int),
	}
}

// close refuses further changes, waits for those in progress, and ends the lease
// of the worker.
func (g *registry) close() {
	g.mu.Lock()
	g.closed = true
	w := g.worker
	g.mu.Unlock()

	g.calls.Wait()
	if w != nil {
		_ = w.Leave(context.Background())
	}
}

// find returns a run that has not ended; nil if there is none.
func (g *registry) find(id string) *active {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.runs[id]; a != nil && a.stored {
		return a
	}
	return nil
}

// light returns a run that has not ended, without payload.
func (g *registry) light(id string) (run engine.Run, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.runs[id]; a != nil && a.stored {
		return a.run, true
	}
	return run, false
}

// row returns what the database is to have of a run that is held.
func (g *registry) row(a *active) row {
	g.mu.Lock()
	defer g.mu.Unlock()
	return row{seq: a.seq, stored: stored{Run: a.run}}
}

// hold begins a change of a run: until release is called nothing else changes
// it, and the engine is not closed. The run is nil if it is not active.
func (g *registry) hold(id string) (*active, func(), error) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil, nil, ErrClosed
	}
	a := g.runs[id]
	g.calls.Add(1)
	g.mu.Unlock()
	if a == nil {
		return nil, g.calls.Done, nil
	}

	a.mu.Lock()
	release := func() { a.mu.Unlock(); g.calls.Done() }
	g.mu.Lock()
	defer g.mu.Unlock()

	if a.gone {
		return nil, release, nil
	}

	return a, release, nil
}

// reserve adds a new run, held by the caller until it is stored.
func (g *registry) reserve(a *active) error {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.closed {
		return ErrClosed
	}
	if g.runs[a.run.ID] != nil {
		return fmt.Errorf("%w: %s", engine.ErrExists, a.run.ID)
	}
	g.runs[a.run.ID] = a
	g.calls.Add(1)
	a.mu.Lock()
	return nil
}

// release ends what reserve began. A run that was not stored is forgotten.
func (g *registry) release(a *active) {
	g.mu.Lock()
	if !a.stored {
		g.drop(a)
	}
	g.mu.Unlock()
	a.mu.Unlock()
	g.calls.Done()
}

// add adds a stored run. The lock must be held.
func (g *registry) add(a *active) {
	a.stored = true
	g.runs[a.run.ID] = a
	if a.worker != nil && a.worker != g.worker {
		a.worker = nil // another one has joined in the meantime
	}
	if a.run.Status == engine.StatusRunning || a.worker != nil {
		g.take(a)
	} else {
		g.enqueue(a)
	}
}

// enqueue puts a queued run into the queue, as nobody's. The lock must be held.
func (g *registry) enqueue(a *active) {
	g.giveBack(a)
	a.worker, a.lease = nil, nil
	at, _ := slices.BinarySearchFunc(g.waiting, a.seq, func(b *active, seq int64) int { return cmp.Compare(b.seq, seq) })
	g.waiting = slices.Insert(g.waiting, at, a)
}

// drop removes a run. The lock must be held.
func (g *registry) drop(a *active) {
	g.giveBack(a)
	delete(g.runs, a.run.ID)
	a.gone, a.worker, a.lease = true, nil, nil
	if i := slices.Index(g.waiting, a); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
}

func (a *active) place() place { return place{a.run.Session, a.run.Origin == engine.OriginParked} }

// take has a run hold a permit. The lock must be held.
func (g *registry) take(a *active) {
	if a.permit {
		return
	}
	a.permit = true
	p := a.place()
	if g.holding[p] == nil {
		g.holding[p] = make(map[string]bool)
	}
	g.holding[p][a.run.ID] = true
	g.owners[g.quota.OwnerOf(p.session)]++
}

// giveBack has a run hold no permit. The lock must be held.
func (g *registry) giveBack(a *active) {
	if !a.permit {
		return
	}
	a.permit = false
	p := a.place()
	if delete(g.holding[p], a.run.ID); len(g.holding[p]) == 0 {
		delete(g.holding, p)
	}
	owner := g.quota.OwnerOf(p.session)
	if g.owners[owner]--; g.owners[owner] == 0 {
		delete(g.owners, owner)
	}
}

// permitted returns an error if there is no permit left for a run. The lock must
// be held.
func (g *registry) permitted(a *active, permits engine.Permits) error {
	p := a.place()
	most, err := permits.Session, engine.ErrSessionLimit
	if p.parked {
		most, err = permits.Parked, engine.ErrParkedLimit
	}
	if held := g.holding[p]; most > 0 && len(held) >= most {
		ids := make([]string, 0, len(held))
		for id := range held {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		return &engine.LimitError{Err: err, Max: most, Active: ids}
	}
	if permits.Owner > 0 && g.owners[g.quota.OwnerOf(p.session)] >= permits.Owner {
		return &engine.LimitError{Err: engine.ErrOwnerLimit, Max: permits.Owner}
	}

	return nil
}

// admit takes a permit for a run, once.
func (g *registry) admit(a *active, permits engine.Permits) error {
	g.mu.Lock()
	defer g.mu.Unlock()

	if a.permit {
		return nil
	}
	if err := g.permitted(a, permits); err != nil {
		return err
	}
	g.take(a)
	return nil
}

// join makes w the worker. What an earlier one had only claimed returns to the
// queue, its running runs are orphans, and pending notices are nobody's. Owners
// may be other ones now.
func (g *registry) join(w *worker, quota engine.Quota, pending []string) {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.worker, g.quota, g.notices = w, quota, pending
	clear(g.owners)
	for p, ids := range g.holding {
		g.owners[quota.OwnerOf(p.session)] += len(ids)
	}

	for _, a := range g.runs {
		if a.run.Status == engine.StatusQueued && a.worker != nil && a.stored {
			g.enqueue(a)
		}
	}
}

// inOrder returns the stored runs that which selects, in the order of
// submission. The lock must be held.
func (g *registry) inOrder(which func(*active) bool) (found []*active) {
	for _, a := range g.runs {
		if a.stored && which(a) {
			found = append(found, a)
		}
	}
	slices.SortFunc(found, func(a, b *active) int { return cmp.Compare(a.seq, b.seq) })
	return found
}
