package background

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"sync"
)

// limits hands out the permits of runs: one of the host's, one of the owner's
// and one of the session's for each; parked calls have permits of their own in a session. A
// permit is taken before a run has a record, or before a queued one starts,
// and given back after its terminal write. It is safe for concurrent use.
//
// Runs that are queued wait here too, each in the line of its session. A
// permit that comes free goes, in the same step, to the run that has waited
// longest of those whose session and owner have room: nobody polls, and nobody is
// overtaken by a spawn.
type limits struct {
	perSession, perOwner, perHost, parked int

	owner func(session string) string

	mu     sync.Mutex
	closed bool // nothing that waits is started any more
	host   int
	lines  map[lane]*line // a lane without permits held and runs waiting has none
	owners map[string]*owner
	ready  pile[*line]
	seq    int64
	queued int
}

// A lane is what shares the permits of a session.
type lane struct {
	session string
	parked  bool
}

func laneOf(run Run) lane { return lane{run.Session, run.Origin == OriginParked} }

// A line is the runs of a lane: those that hold a permit, and those that wait.
type line struct {
	lane    lane
	owner   *owner
	held    map[string]bool // ids
	waiting []waiter        // first come, first served
	index   int             // in ready; -1 if it is not
}

// before says that a line's first run has waited longer than another one's.
func (n *line) before(other *line) bool { return n.waiting[0].seq < other.waiting[0].seq }

func (n *line) place() *int { return &n.index }

// An owner is whose sessions share permits.
type owner struct {
	name    string
	lines   int
	held    int            // permits, by all its lines
	blocked map[*line]bool // lines whose first run lacks the owner's permit, and may lack the host's
}

// A waiter is a queued run. Its task is nil if it has given up.
type waiter struct {
	seq  int64
	task *task
}

func newLimits(cfg Config) *limits {
	l := &limits{
		perSession: cfg.PerSession, perOwner: cmp.Or(cfg.PerOwner, cfg.PerHost), perHost: cfg.PerHost, parked: cfg.Parked, owner: cfg.Owner,
		lines: make(map[lane]*line), owners: make(map[string]*owner),
	}
	if l.owner == nil {
		l.owner = func(session string) string { return session }
	}
	return l
}

// max returns how many permits a lane has.
func (l *limits) max(of lane) int {
	if of.parked {
		return l.parked
	}
	return l.perSession
}

// line returns the line of a lane, made if needed. The lock must be held.
func (l *limits) line(of lane) *line {
	if n := l.lines[of]; n != nil {
		return n
	}
	name := l.owner(of.session)
	o := l.owners[name]
	if o == nil {
		o = &owner{name: name, blocked: make(map[*line]bool)}
		l.owners[name] = o
	}
	o.lines++
	n := &line{lane: of, owner: o, held: make(map[string]bool), index: -1}
	l.lines[of] = n
	return n
}

// acquire takes all permits or none, and never waits. The host's limit is looked
// at first, the owner's last. It returns a *LimitError if there is no room.
func (l *limits) acquire(of lane, id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.host >= l.perHost {
		return &LimitError{Err: ErrHostLimit, Max: l.perHost}
	}
	n := l.line(of)
	if most := l.max(of); len(n.held) >= most {
		sentinel := ErrSessionLimit
		if of.parked {
			sentinel = ErrParkedLimit
		}
		return &LimitError{Err: sentinel, Max: most, Active: slices.Sorted(maps.Keys(n.held))}
	}
	if n.owner.held >= l.perOwner {
		l.settle(n)
		return &LimitError{Err: ErrOwnerLimit, Max: l.perOwner}
	}
	l.take(n, id)
	return nil
}

// take gives a line the permits for a run. The lock must be held.
func (l *limits) take(n *line, id string) {
	n.held[id] = true
	n.owner.held++
	l.host++
}

// release gives back the permits of a run, and returns the queued runs that
// have got them. It does nothing if they were given back before.
func (l *limits) release(of lane, id string) []*task {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.lines[of]
	if n == nil || !n.held[id] {
		return nil
	}
	delete(n.held, id)
	n.owner.held--
	l.host--
	for other := range n.owner.blocked {
		delete(n.owner.blocked, other)
		l.settle(other)
	}
	l.settle(n)
	return l.dispatch()
}

// enqueue makes a run wait for its permits, and returns the runs that have got
// theirs: it may be among them.
func (l *limits) enqueue(t *task) []*task {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	n := l.line(t.lane)
	n.waiting = append(n.waiting, waiter{l.seq, t})
	l.queued++
	l.settle(n)
	return l.dispatch()
}

// withdraw makes a run wait no longer, and reports whether it did wait.
func (l *limits) withdraw(t *task) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.lines[t.lane]
	if n == nil {
		return false
	}
	at := slices.IndexFunc(n.waiting, func(w waiter) bool { return w.task == t })
	if at < 0 {
		return false
	}
	n.waiting[at].task = nil // its place goes when it comes to the front
	l.queued--
	l.settle(n)
	return true
}

// close ends the dispatching, and returns the runs that wait.
func (l *limits) close() []*task {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	var left []*task
	for _, n := range l.lines {
		for _, w := range n.waiting {
			if w.task != nil {
				left = append(left, w.task)
			}
		}
		n.waiting = nil
		l.settle(n)
	}
	l.queued = 0
	return left
}

// dispatch gives permits to those who have waited longest. The lock must be
// held.
func (l *limits) dispatch() []*task {
	var started []*task
	for !l.closed && l.host < l.perHost && len(l.ready) > 0 {
		n := l.ready[0]
		if n.owner.held >= l.perOwner { // by what another of its lines has got
			l.settle(n)
			continue
		}
		t := n.waiting[0].task
		n.waiting[0] = waiter{}
		n.waiting = n.waiting[1:]
		l.take(n, t.run.ID)
		l.queued--
		l.settle(n)
		started = append(started, t)
	}
	return started
}

// settle brings a line that changed to its place: into ready if its first run
// lacks nothing but the host's permit, among those that its owner blocks if it
// lacks that one's, and away if it is empty. The lock must be held.
func (l *limits) settle(n *line) {
	for len(n.waiting) > 0 && n.waiting[0].task == nil {
		n.waiting = n.waiting[1:]
	}
	can := len(n.waiting) > 0 && len(n.held) < l.max(n.lane)
	delete(n.owner.blocked, n)
	if can && n.owner.held >= l.perOwner {
		n.owner.blocked[n], can = true, false
	}
	switch {
	case can && n.index < 0:
		heap.Push(&l.ready, n)
	case can:
		heap.Fix(&l.ready, n.index)
	case n.index >= 0:
		heap.Remove(&l.ready, n.index)
	}
	if len(n.waiting) == 0 && len(n.held) == 0 {
		delete(l.lines, n.lane)
		if n.owner.lines--; n.owner.lines == 0 {
			delete(l.owners, n.owner.name)
		}
	}
}

// counts returns how many permits of the host are held, how many of them by
// parked calls, and how many runs wait.
func (l *limits) counts() (active, parked, queued int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for of, n := range l.lines {
		if of.parked {
			parked += len(n.held)
		}
	}
	return l.host, parked, l.queued
}
