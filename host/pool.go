package host

import (
	"container/list"
	"fmt"
	"slices"
	"sync"
	"time"
)

// pool is the ledger of all memory of a host, and its warm instances: those
// that wait, clean, for the next call.
type pool struct {
	ceiling int64
	most    int // warm instances of a module
	age     time.Duration
	written *pagemap

	mu           sync.Mutex
	memory, peak int64
	counts       Counts
	idle         list.List // of *instance, the one that waits longest first
	timer        *time.Timer
	expiring     sync.WaitGroup // what timer started or will start
	closed       bool
}

// account is the part of the ledger that one module has.
type account struct {
	pool *pool
	// What follows is guarded by pool.mu.
	memory, peak int64
	idle         int
	counts       Counts
}

// take pays for n bytes of memory. What is warm and waits makes room for it. Its
// error matches ErrMemory.
func (a *account) take(n uint64) error {
	p := a.pool
	for {
		p.mu.Lock()
		if p.memory+int64(n) <= p.ceiling {
			p.memory += int64(n)
			p.peak = max(p.peak, p.memory)
			a.memory += int64(n)
			a.peak = max(a.peak, a.memory)
			p.mu.Unlock()
			return nil
		}
		used := p.memory
		var oldest *instance
		if used-p.waiting()+int64(n) <= p.ceiling {
			oldest = p.oldest()
		}
		p.mu.Unlock()
		if oldest == nil {
			return fmt.Errorf("%w: all calls together hold %d of the %d bytes this host allows them, and %d more are needed: try again when others have ended",
				ErrMemory, used, p.ceiling, n)
		}
		oldest.discard()
	}
}

func (a *account) give(n uint64) {
	a.pool.mu.Lock()
	defer a.pool.mu.Unlock()
	a.pool.memory -= int64(n)
	a.memory -= int64(n)
}

// count changes the counters of a module and of its host.
func (a *account) count(change func(*Counts)) {
	a.pool.mu.Lock()
	defer a.pool.mu.Unlock()
	change(&a.counts)
	change(&a.pool.counts)
}

// waiting is the memory of the warm instances. The caller holds mu.
func (p *pool) waiting() (bytes int64) {
	for e := p.idle.Front(); e != nil; e = e.Next() {
		bytes += int64(e.Value.(*instance).mem.size)
	}
	return bytes
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

// warm returns an instance of a snapshot that waits, the one used last, or nil.
func (p *pool) warm(s *snapshot) *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(s.idle) == 0 {
		return nil
	}
	in := s.idle[len(s.idle)-1]
	p.remove(in)
	return in
}

// keep lets a clean instance wait for the next call. It is false if there are
// enough.
func (p *pool) keep(in *instance) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || in.snapshot.closed || in.account.idle >= p.most {
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
	p.written.close()
}
