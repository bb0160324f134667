package engine

// RecordOverhead is how many bytes the record of a run or a schedule counts in
// addition to its payload and its checkpoint: for its texts, which are bounded,
// and for what an engine keeps of it elsewhere.
const RecordOverhead = 16 << 10

// ValueOverhead is how many bytes a value counts in addition to its key and its
// data, and a scope in addition to its values.
const ValueOverhead = 256

// A Quota bounds the size of the records of runs and schedules, and of values. It
// holds for new ones: what a run adds later, a checkpoint and its end, is always stored.
//
// To make room for a new record, runs that have ended without a pending notice and
// disabled schedules are evicted: those of the owner with the largest records
// first, the oldest first, and never those of an owner with less than the new one's.
type Quota struct {
	Max   int64                       // bytes of all records; 0: no limit
	Each  int64                       // bytes of the records of one owner; 0: Max
	Owner func(session string) string // whose a session is; nil: each session is its own owner
}

// OwnerOf returns the owner of a session. What belongs to no session has an owner of
// its own, "".
func (q Quota) OwnerOf(session string) string {
	if q.Owner == nil || session == "" {
		return session
	}

	return q.Owner(session)
}

// Size returns how many bytes the record of a run with its payload counts,
// without its checkpoint.
func (r Run) Size() int64 {
	return RecordOverhead + int64(len(r.Args)) + int64(len(r.Result)) + int64(len(r.Content)) + int64(len(r.Calls))
}

// Evictable reports whether the record of a run may be evicted.
func (r Run) Evictable() bool { return r.Status.Terminal() && r.Notice != NoticePending }

// Size returns how many bytes the record of a schedule counts.
func (s Schedule) Size() int64 { return RecordOverhead + int64(len(s.Args)) }
