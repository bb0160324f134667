package instance

import "time"

// keep lets a clean instance wait for the next call. It is false if there are
// enough.
func (l *Ledger) keep(in *Instance) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.closed || in.Snapshot.forgotten || in.account.figures.Idle >= l.Warm {
		return false
	}
	in.since = time.Now()
	in.waiting = l.idle.PushBack(in)
	in.account.waiting(1)
	in.Snapshot.idle = append(in.Snapshot.idle, in)
	if l.timer == nil {
		l.expireIn(l.WarmFor)
	}
	return true
}

// expireIn checks after d for instances that have waited too long. l.mu must be
// held.
func (l *Ledger) expireIn(d time.Duration) {
	l.expiring.Add(1)
	l.timer = time.AfterFunc(d, l.expire)
}

func (l *Ledger) expire() {
	defer l.expiring.Done()
	l.DiscardWhile(func(in *Instance) bool { return time.Since(in.since) >= l.WarmFor })

	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	if e := l.idle.Front(); e != nil && !l.closed {
		l.expireIn(l.WarmFor - time.Since(e.Value.(*Instance).since))
	}
}

// DiscardWhile discards warm instances, the oldest first.
func (l *Ledger) DiscardWhile(old func(*Instance) bool) {
	l.reclaiming.Lock()
	defer l.reclaiming.Unlock()

	for {
		l.mu.Lock()
		e := l.idle.Front()
		if e == nil || !old(e.Value.(*Instance)) {
			l.mu.Unlock()
			return
		}
		in := e.Value.(*Instance)
		l.remove(in)
		l.mu.Unlock()
		in.Discard()
	}
}

// Waiting returns the warm instances.
func (l *Ledger) Waiting() (all []*Instance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.idle.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*Instance))
	}
	return all
}

// Close discards all warm instances and keeps no more.
func (l *Ledger) Close() {
	l.mu.Lock()
	l.closed = true
	if l.timer != nil && l.timer.Stop() {
		l.expiring.Done()
	}
	l.mu.Unlock()

	l.expiring.Wait()
	l.DiscardWhile(func(*Instance) bool { return true })
	l.awaitFrees()
	l.pagemap.close()
}
