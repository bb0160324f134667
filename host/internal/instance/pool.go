package instance

import "time"

// keep lets a clean instance wait for the next call. It reports false if
// there are enough.
func (l *Ledger) keep(in *Instance) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	s := in.Snapshot
	if l.closed || s.forgotten || in.account.figures.Idle >= l.Warm {
		return false
	}
	in.since = time.Now()
	in.Memory.reclaim()
	s.idle = append(s.idle, in)
	in.account.waiting(1)
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
	l.DiscardOlder(l.WarmFor)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	if in := l.oldest(); in != nil && !l.closed {
		l.expireIn(l.WarmFor - time.Since(in.since))
	}
}

// DiscardOlder discards the warm instances that have waited for at least age.
func (l *Ledger) DiscardOlder(age time.Duration) {
	l.reclaiming.Lock()
	defer l.reclaiming.Unlock()

	for {
		l.mu.Lock()
		in := l.oldest()
		if in == nil || time.Since(in.since) < age {
			l.mu.Unlock()
			return
		}
		l.remove(in)
		l.mu.Unlock()
		in.Discard()
	}
}

// Close discards all warm instances. The ledger keeps no instances afterwards.
func (l *Ledger) Close() {
	l.mu.Lock()
	l.closed = true
	if l.timer != nil && l.timer.Stop() {
		l.expiring.Done()
	}
	l.mu.Unlock()

	l.expiring.Wait()
	l.DiscardOlder(0)
	l.awaitFrees()
	l.pagemap.close()
}
