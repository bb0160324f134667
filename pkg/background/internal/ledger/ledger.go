// Package ledger counts the space that an engine's records take, and decides which
// records to evict for a new one.
package ledger

import (
	"cmp"
	"math"
	"slices"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A Ledger counts the space that records take, and selects records to evict for a new
// one. It is not safe for concurrent use. A nil Ledger counts nothing, and has room for
// everything.
type Ledger struct {
	quota     engine.Quota
	accounts  map[string]account // by owner; none is zero
	used      int64
	over      int64 // part of used that owners have beyond Quota.Each
	evictable int64
}

// An account is the space that an owner's records take.
type account struct {
	used      int64
	evictable int64 // evictable part of used
}

// New returns an empty Ledger.
func New(q engine.Quota) *Ledger {
	if q.Max == 0 {
		q.Max = math.MaxInt64 / 4
	}
	if q.Each == 0 {
		q.Each = q.Max
	}
	return &Ledger{quota: q, accounts: make(map[string]account)}
}

// Used returns the space that all records take, in bytes.
func (l *Ledger) Used() int64 {
	if l == nil {
		return 0
	}
	return l.used
}

// Add adds used to the bytes that a session's records take, and evictable to the part
// that may be evicted. Negative numbers subtract.
func (l *Ledger) Add(session string, used, evictable int64) {
	if l == nil {
		return
	}
	who := l.quota.OwnerOf(session)
	a := l.accounts[who]
	l.over -= max(0, a.used-l.quota.Each)
	a.used += used
	a.evictable += evictable
	l.over += max(0, a.used-l.quota.Each)
	l.used += used
	l.evictable += evictable

	if a == (account{}) {
		delete(l.accounts, who)
	} else {
		l.accounts[who] = a
	}
}

// Room selects the records to evict to make room for a session's record of size bytes;
// nil means none. If eviction cannot free enough, it returns a *[engine.LimitError]
// that matches [engine.ErrRecordLimit].
//
// Records are evicted from the owner that uses the most, then from the next one if
// these are not enough, but never from an owner that uses less than the session's owner
// would use with the new record. If runs admitted earlier use more than an owner's
// share, the excess does not count against others.
func (l *Ledger) Room(session string, size int64) (*Eviction, error) {
	if l == nil {
		return nil, nil
	}
	who := l.quota.OwnerOf(session)
	a := l.accounts[who]
	e := &Eviction{quota: l.quota, want: make(map[string]int64)}
	after := account{a.used + size, a.evictable}
	if over := after.used - l.quota.Each; over > 0 {
		if over > a.evictable {
			return nil, &engine.LimitError{Err: engine.ErrRecordLimit, Max: clampInt(l.quota.Each)}
		}
		e.add(who, over)
		after.used, after.evictable = after.used-over, after.evictable-over
	}
	lack := l.used - l.over - min(a.used, l.quota.Each) + after.used - l.quota.Max
	if lack > 0 && !l.claim(e, who, after, lack) {
		return nil, &engine.LimitError{Err: engine.ErrRecordLimit, Max: clampInt(l.quota.Max)}
	}
	if e.need == 0 {
		return nil, nil
	}
	e.more = l.quota.Max / 20
	for giver := range e.want {
		e.more = min(e.more, l.accounts[giver].used/20)
	}

	return e, nil
}

// claim adds to e the bytes that owners other than who, and finally who itself, have to
// give up to free lack bytes. It reports whether they have enough. after is the account
// of who with the new record.
func (l *Ledger) claim(e *Eviction, who string, after account, lack int64) bool {
	if lack > l.evictable-e.need {
		return false
	}
	type giver struct {
		name string
		account
	}

	var givers []giver
	for name, a := range l.accounts {
		if name == who {
			a = after
		}
		if a.evictable > 0 && a.used >= after.used {
			givers = append(givers, giver{name, a})
		}
	}
	slices.SortFunc(givers, func(a, b giver) int {
		return cmp.Or(cmp.Compare(b.used, a.used), cmp.Compare(a.name, b.name))
	})

	for _, g := range givers {
		vain := max(0, g.used-l.quota.Each) // freeing it would not count
		if gain := min(lack, g.evictable-vain); gain > 0 {
			e.add(g.name, vain+gain)
			lack -= gain
		}
		if lack == 0 {
			return true
		}
	}

	return false
}

// evictAtOnce is how many records are evicted at once if possible, so that searching
// for them is rare.
const evictAtOnce = 64

// An Eviction selects records to evict: see [Ledger.Room]. The engine offers
// candidates in the order they ended, until Done reports true.
type Eviction struct {
	quota engine.Quota
	want  map[string]int64 // bytes to free, by owner
	need  int64            // their sum
	more  int64            // bytes that may be freed in addition, for the next records: a small part of each owner's
	taken int
}

func (e *Eviction) add(who string, n int64) {
	e.want[who] += n
	e.need += n
}

// Take reports whether to evict a record of size bytes that belongs to the session.
func (e *Eviction) Take(session string, size int64) bool {
	who := e.quota.OwnerOf(session)
	want, ok := e.want[who]
	switch {
	case !ok, e.Done():
		return false
	case want > 0:
		e.need -= min(want, size)
		e.want[who] = max(0, want-size)
	case e.more < size || e.taken >= evictAtOnce:
		return false
	default:
		e.more -= size
	}

	e.taken++
	return true
}

// Enough reports whether the evicted records free enough space.
func (e *Eviction) Enough() bool { return e.need == 0 }

// Done reports whether nothing more needs to be evicted.
func (e *Eviction) Done() bool {
	return e.need == 0 && (e.taken >= evictAtOnce || e.more < engine.RecordOverhead)
}

// clampInt returns n as an int, which may have 32 bits.
func clampInt(n int64) int { return int(min(n, math.MaxInt)) }
