package background

import (
	"cmp"
	"math"
	"slices"
)

// RecordOverhead is how many bytes the record of a run or a schedule counts
// beside its arguments, its result, its content and its checkpoint: for its
// texts, which are bounded, and for what an engine has of it elsewhere.
const RecordOverhead = 16 << 10

// A Quota bounds what records take: those of runs and of schedules. It holds
// for new records. What a run that was let in adds later, a checkpoint and its
// end, is stored whatever there is room for: so records may take more by what
// the active runs add.
//
// A record may go to make room for another one if nobody waits for it: the run
// has ended, and its notice is not pending, or the schedule is not enabled.
type Quota struct {
	Max   int64                       // bytes of all records; positive
	Each  int64                       // bytes of the records of one owner; positive, at most Max
	Owner func(session string) string // whose a session is; nil: each is an owner by itself
}

// A Ledger counts what records take, and says which have to go for a new one.
// It is there for engines. It is not safe for concurrent use. A nil Ledger
// counts nothing, and has room for everything.
type Ledger struct {
	quota    Quota
	accounts map[string]account // by owner; none is zero
	used     int64
	over     int64 // of used, what owners have beyond Quota.Each
	spare    int64
}

// An account is what the records of an owner take.
type account struct {
	used  int64
	spare int64 // of it, what may go
}

// NewLedger returns a Ledger that has counted nothing yet.
func NewLedger(q Quota) *Ledger {
	return &Ledger{quota: q, accounts: make(map[string]account)}
}

func (q Quota) ownerOf(session string) string {
	if q.Owner == nil {
		return session
	}
	return q.Owner(session)
}

// Used returns how many bytes all records take.
func (l *Ledger) Used() int64 {
	if l == nil {
		return 0
	}
	return l.used
}

// Add counts that the records of a session take used bytes more, and those of
// them that may go spare bytes more: less, if they are negative.
func (l *Ledger) Add(session string, used, spare int64) {
	if l == nil {
		return
	}
	who := l.quota.ownerOf(session)
	a := l.accounts[who]
	l.over -= max(0, a.used-l.quota.Each)
	a.used += used
	a.spare += spare
	l.over += max(0, a.used-l.quota.Each)
	l.used += used
	l.spare += spare
	if a == (account{}) {
		delete(l.accounts, who)
	} else {
		l.accounts[who] = a
	}
}

// Room says what has to go so that there is room for a record of size bytes of
// a session: nil for nothing. If there is no room even so, it returns a
// *[LimitError] that matches [ErrRecordLimit].
//
// What goes are records of the owner who takes most, and of the next one if
// these are not enough; never of one who takes less than the session's owner
// then does. What an owner came to have beyond its own part, by runs that were
// let in before, is not at the expense of others.
func (l *Ledger) Room(session string, size int64) (*Eviction, error) {
	if l == nil {
		return nil, nil
	}
	who := l.quota.ownerOf(session)
	a := l.accounts[who]
	e := &Eviction{quota: l.quota, want: make(map[string]int64)}
	after := account{a.used + size, a.spare}
	if over := after.used - l.quota.Each; over > 0 {
		if over > a.spare {
			return nil, &LimitError{Err: ErrRecordLimit, Max: clampInt(l.quota.Each)}
		}
		e.add(who, over)
		after.used, after.spare = after.used-over, after.spare-over
	}
	lack := l.used - l.over - min(a.used, l.quota.Each) + after.used - l.quota.Max
	if lack > 0 && !l.claim(e, who, after, lack) {
		return nil, &LimitError{Err: ErrRecordLimit, Max: clampInt(l.quota.Max)}
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

// claim adds to e what others than who, and who itself at last, have to give up
// so that lack bytes come free, and reports whether they have as much. after is
// what who will have.
func (l *Ledger) claim(e *Eviction, who string, after account, lack int64) bool {
	if lack > l.spare-e.need {
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
		if a.spare > 0 && a.used >= after.used {
			givers = append(givers, giver{name, a})
		}
	}
	slices.SortFunc(givers, func(a, b giver) int {
		return cmp.Or(cmp.Compare(b.used, a.used), cmp.Compare(a.name, b.name))
	})
	for _, g := range givers {
		vain := max(0, g.used-l.quota.Each) // it is not counted anyway
		if gain := min(lack, g.spare-vain); gain > 0 {
			e.add(g.name, vain+gain)
			lack -= gain
		}
		if lack == 0 {
			return true
		}
	}
	return false
}

// evictAtOnce is how many records go at once if there are as many, so that
// they are not looked for each time.
const evictAtOnce = 64

// An Eviction says which records have to go: see [Ledger.Room]. The engine
// shows it all that may go, those that ended first before the others, until it
// is Done.
type Eviction struct {
	quota Quota
	want  map[string]int64 // by owner: bytes that have to go
	need  int64            // their sum
	more  int64            // bytes that may go beyond it, so that the next ones find room: little of what each has
	taken int
}

func (e *Eviction) add(who string, n int64) {
	e.want[who] += n
	e.need += n
}

// Take reports whether a record of a session has to go that takes size bytes.
func (e *Eviction) Take(session string, size int64) bool {
	who := e.quota.ownerOf(session)
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

// Enough reports whether what was taken makes room.
func (e *Eviction) Enough() bool { return e.need == 0 }

// Done reports whether no more is taken.
func (e *Eviction) Done() bool {
	return e.need == 0 && (e.taken >= evictAtOnce || e.more < RecordOverhead)
}

// clampInt is n as an int, which may have 32 bits.
func clampInt(n int64) int { return int(min(n, math.MaxInt)) }

// Size returns what the record of a run counts, without its checkpoint. It is
// there for engines.
func (r Run) Size() int64 { return RecordOverhead + r.payload() }

// payload is what of a record may be large.
func (r Run) payload() int64 {
	return int64(len(r.Args)) + int64(len(r.Result)) + int64(len(r.Content))
}

// Spare reports whether the record of a run may go to make room, see [Quota].
// It is there for engines.
func (r Run) Spare() bool { return r.Status.Terminal() && r.Notice != NoticePending }
