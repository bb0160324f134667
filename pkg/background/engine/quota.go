package engine

// RecordOverhead is the number of bytes that [Quota] counts for the record of a run or a
// schedule in addition to its payload and its checkpoint. It covers texts of bounded length, and
// data that an engine stores elsewhere.
const RecordOverhead = 16 << 10

// ValueOverhead is the number of bytes that [Quota] counts for a value in addition to its key
// and data, and for a scope in addition to its values.
const ValueOverhead = 256

// A Quota limits the total size of values and of the records of runs and schedules. It
// applies only to what is new: a run's checkpoint and its end are always stored.
//
// To make room for a new record, disabled schedules and ended runs without a pending notice are
// evicted, oldest first: those of the owner whose records take the most space first, and never
// those of an owner whose records take less than those of the new record's owner.
type Quota struct {
	Max   int64                       // maximum size of all records, in bytes; 0: no limit
	Each  int64                       // maximum size of the records of one owner, in bytes; 0: Max
	Owner func(session string) string // returns the owner of a session; nil: each session is its own owner
}

// OwnerOf returns the owner of a session. Data without a session belongs to an owner
// of its own, "".
func (q Quota) OwnerOf(session string) string {
	if q.Owner == nil || session == "" {
		return session
	}

	return q.Owner(session)
}

// Size returns the size of the record of a run in bytes, as [Quota] counts it, with its payload
// and without its checkpoint.
func (r Run) Size() int64 {
	return RecordOverhead + int64(len(r.Args)) + int64(len(r.Result)) + int64(len(r.Content)) + int64(len(r.Calls))
}

// Evictable reports whether the record of a run may be evicted.
func (r Run) Evictable() bool { return r.Status.Terminal() && r.Notice != NoticePending }

// Size returns the size of the record of a schedule in bytes, as [Quota] counts it.
func (s Schedule) Size() int64 { return RecordOverhead + int64(len(s.Args)) }
