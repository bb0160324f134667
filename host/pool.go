package host

import (
	"container/list"
	"fmt"
	"slices"
	"sync"
	"time"
)

// pool is the ledger of all memory of a host, and what it keeps to be quick:
// snapshots, and the warm instances that wait, clean, for the next call.
type pool struct {
	tally    tally
	ceiling  int64
	most     int // warm instances of a module
	age      time.Duration
	written  *pagemap
	heapOnly bool // no memory is mapped: so it is where that cannot be done, and in tests

	// reclaiming is held while something that is kept is given up: its memory is
	// neither free then, nor is it kept. It is locked before mu.
	reclaiming sync.Mutex

	mu           sync.Mutex
	memory, peak int64
	idle         list.List // of *instance, the one that waits longest first
	snapshots    list.List // of *snapshot, the one used longest ago first
	timer        *time.Timer
	expiring     sync.WaitGroup // what timer started or will start
	closed       bool
	freeing      int   // memories that freeLater gives back
	frees        int64 // how many it has given back
	freed        sync.Cond
}

// account is the part of the ledger that one module has.
type account struct {
	pool  *pool
	tally tally
	// beside is what each instance takes beside its memory, in bytes. It is paid
	// with that.
	beside uint64
	// What follows is guarded by pool.mu.
	memory, peak int64
	idle         int
}

// take pays for n bytes of memory. What is kept to be quick makes room for it.
// Its error matches ErrMemory.
func (a *account) take(n uint64) error {
	p := a.pool
	if a.tryTake(n) {
		return nil
	}
	p.reclaiming.Lock()
	defer p.reclaiming.Unlock()
	for frees := p.freesSoFar(); !a.tryTake(n); frees = p.freesSoFar() {
		if !p.awaitFree(frees) && !p.reclaim(n) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return fmt.Errorf("%w: all calls together hold %d of the %d bytes this host allows them, and %d more are needed: try again when others have ended",
				ErrHostMemory, p.memory, p.ceiling, n)
		}
	}
	return nil
}

func (a *account) tryTake(n uint64) bool {
	p := a.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.memory+int64(n) > p.ceiling {
		return false
	}
	p.memory += int64(n)
	p.peak = max(p.peak, p.memory)
	a.memory += int64(n)
	a.peak = max(a.peak, a.memory)
	return true
}

// reclaim gives up the warm instance that waits longest, or else the snapshot
// that was used longest ago. It is false if all of them were not enough for n
// bytes.
func (p *pool) reclaim(n uint64) bool {
	p.mu.Lock()
	if p.memory-p.spare()+int64(n) > p.ceiling {
		p.mu.Unlock()
		return false
	}
	if in := p.oldest(); in != nil {
		p.mu.Unlock()
		in.discard()
		return true
	}
	for e := p.snapshots.Front(); e != nil; e = e.Next() {
		if s := e.Value.(*snapshot); s.unused() && s.bytes() > 0 {
			p.forget(s) // which has no instance
			s.users++   // until it is released
			p.mu.Unlock()
			s.release()
			return true
		}
	}
	p.mu.Unlock()
	return false
}

// spare is the memory of what is kept only to be quick. The caller holds mu.
func (p *pool) spare() (bytes int64) {
	for e := p.idle.Front(); e != nil; e = e.Next() {
		in := e.Value.(*instance)
		bytes += int64(in.mem.paid + in.account.beside)
	}
	for e := p.snapshots.Front(); e != nil; e = e.Next() {
		if s := e.Value.(*snapshot); s.unused() {
			bytes += s.bytes()
		}
	}
	return bytes
}

// roomy reports whether there is memory to keep things for later.
func (a *account) roomy() bool {
	a.pool.mu.Lock()
	defer a.pool.mu.Unlock()
	return a.pool.memory <= a.pool.ceiling/2
}

func (a *account) give(n uint64) {
	a.pool.mu.Lock()
	defer a.pool.mu.Unlock()
	a.pool.memory -= int64(n)
	a.memory -= int64(n)
}

// freeLater has memory given back by another goroutine.
func (p *pool) freeLater(free func()) {
	p.mu.Lock()
	p.freeing++
	p.mu.Unlock()

	go func() {
		free()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.freeing--
		p.frees++
		p.freed.Broadcast()
	}()
}

func (p *pool) freesSoFar() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frees
}

// awaitFree waits until freeLater has given back more memories than there were.
// It is false if there are none to wait for.
func (p *pool) awaitFree(were int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.frees == were {
		if p.freeing == 0 {
			return false
		}
		p.freed.Wait()
	}
	return true
}

// oldest takes out the instance that waits longest, nil if none does. The
// caller holds mu.
func (p *pool) oldest() *instance {
	e := p.idle.Front()
	if e == nil {
		return nil
	}
	in := e.Value.(*instance)
	p.remove(in)
	return in
}

// remove takes out an instance that waits. The caller holds mu.
func (p *pool) remove(in *instance) {
	p.idle.Remove(in.waiting)
	in.waiting = nil
	in.account.idle--
	s := in.snapshot
	s.idle = slices.DeleteFunc(s.idle, func(other *instance) bool { return other == in })
}

// forget takes a snapshot out of the pool and the table of its module, and its
// warm instances, which the caller discards. The caller holds mu.
func (p *pool) forget(s *snapshot) []*instance {
	s.forgotten = true
	delete(s.module.snapshots, s.view)
	if s.recent != nil {
		p.snapshots.Remove(s.recent)
	}
	idle := slices.Clone(s.idle)
	for _, in := range idle {
		p.remove(in)
	}
	return idle
}

// crowd returns the snapshots that are too many, of a module or of all. The
// caller holds mu.
func (p *pool) crowd(m *Module) (old []*snapshot) {
	ours, all := len(m.snapshots)-maxSnapshots, p.snapshots.Len()-maxHostSnapshots
	for e := p.snapshots.Front(); e != nil && (ours > 0 || all > 0); e = e.Next() {
		s := e.Value.(*snapshot)
		if all > 0 || s.module == m {
			old = append(old, s)
			all--
			if s.module == m {
				ours--
			}
		}
	}
	return old
}

// keep lets a clean instance wait for the next call. It is false if there are
// enough.
func (p *pool) keep(in *instance) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || in.snapshot.forgotten || in.account.idle >= p.most {
		return false
	}
	in.since = time.Now()
	in.waiting = p.idle.PushBack(in)
	in.account.idle++
	in.snapshot.idle = append(in.snapshot.idle, in)
	if p.timer == nil {
		p.expireIn(p.age)
	}
	return true
}

// expireIn looks for instances that have waited too long after d. The caller
// holds mu.
func (p *pool) expireIn(d time.Duration) {
	p.expiring.Add(1)
	p.timer = time.AfterFunc(d, p.expire)
}

func (p *pool) expire() {
	defer p.expiring.Done()
	p.discardWhile(func(in *instance) bool { return time.Since(in.since) >= p.age })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	if e := p.idle.Front(); e != nil && !p.closed {
		p.expireIn(p.age - time.Since(e.Value.(*instance).since))
	}
}

// discardWhile discards waiting instances, the oldest first.
func (p *pool) discardWhile(old func(*instance) bool) {
	p.reclaiming.Lock()
	defer p.reclaiming.Unlock()
	for {
		p.mu.Lock()
		var in *instance
		if e := p.idle.Front(); e != nil && old(e.Value.(*instance)) {
			in = p.oldest()
		}
		p.mu.Unlock()
		if in == nil {
			return
		}
		in.discard()
	}
}

// close discards all warm instances and keeps no more.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	if p.timer != nil && p.timer.Stop() {
		p.expiring.Done()
	}
	p.mu.Unlock()
	p.expiring.Wait()
	p.discardWhile(func(*instance) bool { return true })
	p.mu.Lock()
	for p.freeing > 0 {
		p.freed.Wait()
	}
	p.mu.Unlock()
	p.written.close()
}
