package sqlite

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// An active is a run that has not ended. The database contains everything that is
// needed to start over after the death of the process.
type active struct {
	mu    sync.Mutex // held while the run is being changed
	seq   int64
	size  int64 // size of its record in bytes, see row; guarded by mu
	saved int64 // size of its checkpoint in bytes; likewise
	state int64 // size of its state in bytes; likewise
	noted bool  // whether it was logged that its artifacts could not be written; likewise

	// The registry's lock guards these.
	run     engine.Run // without payload; its Beat is newer than the stored one
	log     *logFile   // log of the current attempt; nil until this process needs it
	worker  *worker    // the worker that has it; nil: none
	lease   *lease     // current lease
	changed bool       // whether its Beat has not been stored yet
}

// A line is a list of active runs in the order of submission, which is the order of their seq.
type line []*active

// place returns the position of the run with a seq, or where it would be inserted.
func (l line) place(seq int64) (at int, found bool) {
	return slices.BinarySearchFunc(l, seq, func(a *active, seq int64) int { return cmp.Compare(a.seq, seq) })
}

// with returns the line with a run that may be in it already.
func (l line) with(a *active) line {
	if at, found := l.place(a.seq); !found {
		return slices.Insert(l, at, a)
	}
	return l
}

// without returns the line without a run.
func (l line) without(a *active) line {
	if at, found := l.place(a.seq); found {
		return slices.Delete(l, at, at+1)
	}
	return l
}

// A registry holds the active runs, and all state that is kept only in memory:
// claims, permits, and the queue.
type registry struct {
	mu       sync.Mutex
	runs     map[string]*active
	all      line               // the same runs
	sessions map[string]line    // the same runs, by session
	queue    line               // unclaimed queued runs
	holders  map[string]*active // runs that hold a permit: claimed, running, or being stored as such
	worker   *worker            // the current worker, or nil
	waits    waitList           // waiting runs
	quota    engine.Quota
	notices  []string // ids of runs with a pending, unclaimed notice

	life   sync.RWMutex // read-locked by changes in progress
	closed bool         // guarded by life
}

func newRegistry() *registry {
	return &registry{runs: make(map[string]*active), sessions: make(map[string]line), holders: make(map[string]*active), waits: newWaitList()}
}

// close refuses further changes, waits for those in progress, and ends the
// worker's lease.
func (g *registry) close() {
	g.life.Lock()
	g.closed = true
	g.life.Unlock()

	g.mu.Lock()
	defer g.mu.Unlock()
	g.worker = nil
}

// err returns [engine.ErrClosed] once the registry is closed.
func (g *registry) err() error {
	g.life.RLock()
	defer g.life.RUnlock()
	if g.closed {
		return engine.ErrClosed
	}
	return nil
}

// light returns a run that has not ended, without payload.
func (g *registry) light(id string) (run engine.Run, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.runs[id]; a != nil {
		return a.run, true
	}
	return run, false
}

// change calls do with an active run and its row as last stored, unless check
// returns an error. While do runs, nothing else changes the run, and the engine
// is not closed. check is called with the registry's lock held, and with nil if
// the run is not active.
func (g *registry) change(id string, check func(a *active) error, do func(a *active, r row) error) error {
	g.life.RLock()
	defer g.life.RUnlock()
	if g.closed {
		return engine.ErrClosed
	}

	g.mu.Lock()
	a := g.runs[id]
	if a != nil {
		g.mu.Unlock()
		a.mu.Lock()
		defer a.mu.Unlock()
		g.mu.Lock()
		a = g.runs[id] // it may have ended meanwhile
	}
	err := check(a)
	var r row
	if a != nil {
		r = row{seq: a.seq, stored: stored{Run: a.run}}
	}
	g.mu.Unlock()
	if err != nil {
		return err
	}

	return do(a, r)
}

// add adds a stored run. The lock must be held.
func (g *registry) add(a *active) {
	g.runs[a.run.ID] = a
	g.all, g.sessions[a.run.Session] = g.all.with(a), g.sessions[a.run.Session].with(a)
	if a.worker != nil && a.worker != g.worker {
		a.worker = nil // another one has joined meanwhile
	}
	if a.run.Status == engine.StatusWaiting {
		g.addWaiting(a)
		return
	}
	if a.run.Status == engine.StatusRunning || a.worker != nil {
		g.holders[a.run.ID] = a
		return
	}
	g.enqueue(a)
}

// enqueue adds an unclaimed run to the queue. The lock must be held.
func (g *registry) enqueue(a *active) {
	g.giveBack(a)
	a.worker, a.lease = nil, nil
	g.queue = g.queue.with(a)
}

// dequeue removes a run from the queue, and reports whether it was there. The lock must be
// held.
func (g *registry) dequeue(a *active) bool {
	before := len(g.queue)
	g.queue = g.queue.without(a)
	return len(g.queue) < before
}

// listedAtOnce is the number of runs that list looks at before it lets others have the
// lock: a hundred thousand runs may be waiting.
const listedAtOnce = 1000

// list returns the runs that q selects among those with a seq below the given one, newest first.
func (g *registry) list(q engine.Query, below int64) (found []row) {
	for {
		g.mu.Lock()
		l := g.all
		if q.Session != "" {
			l = g.sessions[q.Session]
		}
		at, _ := l.place(below)
		rest := max(0, at-listedAtOnce)
		for _, a := range slices.Backward(l[rest:at]) {
			if below = a.seq; !q.Matches(a.run) {
				continue
			}
			if found = append(found, row{seq: a.seq, stored: stored{Run: a.run}}); len(found) == q.Limit {
				rest = 0 // enough
				break
			}
		}
		g.mu.Unlock()

		if rest == 0 {
			return found
		}
	}
}

// drop removes a run that has ended, and returns the runs that this wakes. The lock must
// be held.
func (g *registry) drop(a *active) (woken []engine.Run) {
	if a.run.Status == engine.StatusWaiting {
		g.removeWaiting(a)
	}
	g.giveBack(a)
	delete(g.runs, a.run.ID)
	g.all = g.all.without(a)
	if rest := g.sessions[a.run.Session].without(a); len(rest) > 0 {
		g.sessions[a.run.Session] = rest
	} else {
		delete(g.sessions, a.run.Session)
	}
	a.worker, a.lease = nil, nil
	g.dequeue(a)
	return g.resume(slices.Clone(g.waits.awaited[a.run.ID])...)
}

// giveBack releases the permit of a run. The lock must be held.
func (g *registry) giveBack(a *active) {
	if g.holders[a.run.ID] == a {
		delete(g.holders, a.run.ID)
	}
}

// admit gives a run a permit, or returns an error if none is left. The lock
// must be held.
func (g *registry) admit(a *active, permits engine.Permits) error {
	parked := a.run.Origin == engine.OriginParked
	most, limit := permits.Session, engine.ErrSessionLimit
	if parked {
		most, limit = permits.Parked, engine.ErrParkedLimit
	}

	if n := len(g.holders); most > 0 && n >= most || permits.Owner > 0 && n >= permits.Owner {
		var same []string // ids of runs of the same session and kind
		owned, owner := 0, g.quota.OwnerOf(a.run.Session)
		for id, b := range g.holders {
			if b == a {
				continue // the transaction was retried
			}
			if b.run.Session == a.run.Session && (b.run.Origin == engine.OriginParked) == parked {
				same = append(same, id)
			}
			if g.quota.OwnerOf(b.run.Session) == owner {
				owned++
			}
		}
		if most > 0 && len(same) >= most {
			slices.Sort(same)
			return &engine.LimitError{Err: limit, Max: most, Active: same}
		}
		if permits.Owner > 0 && owned >= permits.Owner {
			return &engine.LimitError{Err: engine.ErrOwnerLimit, Max: permits.Owner}
		}
	}

	g.holders[a.run.ID] = a
	return nil
}

// parented returns an error if the parent of a run cannot have another child. A
// child in the same transaction as the end of its parent came before that end.
// The lock must be held.
func (g *registry) parented(run engine.Run, permits *engine.Permits) error {
	if run.Parent == "" {
		return nil
	}
	p := g.runs[run.Parent]
	if p == nil || p.run.Session != run.Session || p.run.Cancel != nil {
		return fmt.Errorf("%w: %s", engine.ErrParent, run.Parent)
	}

	children := g.waits.children[run.Parent]
	for id, a := range g.holders { // includes runs that are being stored
		if a.run.Parent == run.Parent && id != run.ID {
			children++
		}
	}
	for _, a := range g.queue {
		if a.run.Parent == run.Parent {
			children++
		}
	}
	if permits != nil && permits.Children > 0 && children >= permits.Children {
		return &engine.LimitError{Err: engine.ErrChildLimit, Max: permits.Children}
	}
	return nil
}

// join starts over for a new worker. Runs that an earlier one had only claimed
// return to the queue, its running runs become orphans, and pending notices are
// unclaimed.
func (g *registry) join(quota engine.Quota, pending []string) {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.quota, g.notices = quota, pending
	for _, a := range g.runs {
		if a.run.Status == engine.StatusQueued && a.worker != nil {
			g.enqueue(a)
		}
	}
}

// called returns the size of a run's stored calls in bytes.
func (g *registry) called(a *active) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return a.run.CallsSize
}
