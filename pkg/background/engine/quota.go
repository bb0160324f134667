package engine

// RecordOverhead is the number of bytes that the record of a run or a schedule
// counts in addition to its payload and its checkpoint. It covers texts of
// bounded length, and data that an engine stores elsewhere.
const RecordOverhead = 16 << 10

// ValueOverhead is the number of bytes that a value counts in addition to its
// key and data, and a scope in addition to its values.
const ValueOverhead = 256

// A Quota limits the size of the records of runs and schedules, and of values. It
// applies to new ones. What a run adds later, its checkpoint and its end, is always
// stored.
//
// To make room for a new record, disabled schedules and ended runs without a pending
// notice are evicted: those of the owner with the largest records first, oldest first,
// and never those of an owner with less than the owner of the new record.
type Quota struct {
	Max   int64                       // bytes of all records; 0: no limit
	Each  int64                       // bytes of the records of one owner; 0: Max
	Owner func(session string) string // owner of a session; nil: each session is its own owner
}

// OwnerOf returns the owner of a session. Data without a session belongs to an owner
// of its own, "".
func (q Quota) OwnerOf(session string) string {
	if q.Owner == nil || session == "" {
		return session
	}

	return q.Owner(session)
}

// Size returns how many bytes the record of a run counts, with its payload and without
// its checkpoint.
func (r Run) Size() int64 {
	return RecordOverhead + int64(len(r.Args)) + int64(len(r.Result)) + int64(len(r.Content)) + int64(len(r.Calls))
}

// Evictable reports whether the record of a run may be evicted.
func (r Run) Evictable() bool { return r.Status.Terminal() && r.Notice != NoticePending }

// Size returns how many bytes the record of a schedule counts.
func (s Schedule) Size() int64 { return RecordOverhead + int64(len(s.Args)) }
