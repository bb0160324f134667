package engine

// RecordOverhead is the number of bytes for which the record of a run or a schedule
// counts in addition to its payload and its checkpoint. It covers texts of
// bounded length, and data that an engine stores elsewhere.
const RecordOverhead = 16 << 10

// ValueOverhead is the number of bytes for which a value counts in addition to its
// key and data, and a scope in addition to its values.
const ValueOverhead = 256

// A Quota limits the total size of values and of the records of runs and schedules. It
// applies only to what is new: a run's checkpoint and its end are always stored.
//
// To make room for a new record, disabled schedules and ended runs without a pending
// notice are evicted: those of the owner with the largest records first, oldest first,
// and never those of an owner with less than the owner of the new record.
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

// Size returns the number of bytes for which the record of a run counts, with its payload
// and without its checkpoint.
func (r Run) Size() int64 {
	return RecordOverhead + int64(len(r.Args)) + int64(len(r.Result)) + int64(len(r.Content)) + int64(len(r.Calls))
}

// Evictable reports whether the record of a run may be evicted.
func (r Run) Evictable() bool { return r.Status.Terminal() && r.Notice != NoticePending }

// Size returns the number of bytes for which the record of a schedule counts.
func (s Schedule) Size() int64 { return RecordOverhead + int64(len(s.Args)) }
