package engine

import (
	"context"
	"fmt"
	"time"
)

// Values stores small values, by scope and key. Writes are ordered within a scope: each gives
// its value a higher version than all earlier writes of the scope, even those of values that
// have been deleted.
type Values interface {
	// Value returns a value, or an error matching [ErrNotFound].
	Value(ctx context.Context, s Scope, key string) (Value, error)

	// Values returns up to max values of a scope in the byte order of their keys, or all if
	// max is 0, from the first key that sorts after the given one. They have Data only if
	// data is set.
	Values(ctx context.Context, s Scope, after string, max int, data bool) ([]Value, error)

	// PutValue stores v.Key, v.Data and v.Expires, and returns the value with its new version.
	// If the stored version is not v.Version, the error matches [ErrConflict]: a missing value
	// has version 0, and [AnyVersion] matches all. An empty key appends: the new version
	// becomes the key, as text that sorts in the order of versions. A value that exceeds limit
	// is refused with a *[LimitError] matching [ErrValueCount] or [ErrValueBytes]. If it
	// exceeds the quota of records, the error matches [ErrRecordLimit].
	PutValue(ctx context.Context, s Scope, v Value, limit ValueLimit) (Value, error)

	// DeleteValue removes a value. The error matches [ErrNotFound] if there is none, and
	// [ErrConflict] if it has another version.
	DeleteValue(ctx context.Context, s Scope, key string, version int64) error

	// DropValues removes the values whose keys do not sort after the key through, or the
	// whole scope if through is "".
	DropValues(ctx context.Context, s Scope, through string) error

	// Scopes returns the sizes of the scopes whose names begin with prefix, without
	// mailboxes, by session and name. An empty session selects all sessions.
	Scopes(ctx context.Context, session, prefix string) ([]ScopeInfo, error)
}

// AnyVersion matches every version of a value, and a missing value.
const AnyVersion = -1

// A Scope identifies a set of values. It exists while it has values.
type Scope struct {
	Session string // session whose owner's quota counts the values; "": none, and the values outlast all sessions
	Name    string // name within the session; "": the session's own values
	// Run makes the scope the mailbox of that run of the session, with Name "".
	// PutValue returns an error matching [ErrNotFound] unless the run is active, and
	// watchers get an [EventMessage]. The scope is removed when the run ends.
	Run string
}

// A Value is one value of a scope.
type Value struct {
	Key     string
	Version int64
	Data    []byte
	Bytes   int // length of Data
	At      time.Time
	Expires time.Time // time from which the value counts as missing; zero: never
}

// Expired reports whether the value counts as missing.
func (v Value) Expired(now time.Time) bool { return !v.Expires.IsZero() && !v.Expires.After(now) }

// ScopeInfo is the size of a scope. It may include expired values.
type ScopeInfo struct {
	Scope
	Count   int
	Bytes   int64 // size of keys and data
	Changed time.Time
}

// A ValueLimit limits the values of a scope.
type ValueLimit struct {
	Count int   // maximum number of values; 0: no limit
	Bytes int64 // maximum size of keys and data, in bytes; 0: no limit
}

// VersionKey returns the key of an appended value.
func VersionKey(version int64) string { return fmt.Sprintf("%019d", version) }

// Check returns an error if a scope with that number of values, and that size of keys and data,
// would exceed the limit.
func (l ValueLimit) Check(count int, bytes int64) error {
	switch {
	case l.Count > 0 && count > l.Count:
		return &LimitError{Err: ErrValueCount, Max: l.Count}
	case l.Bytes > 0 && bytes > l.Bytes:
		return &LimitError{Err: ErrValueBytes, Max: int(l.Bytes)}
	}
	return nil
}

// ScopeSize returns the size of a scope in bytes, as [Quota] counts it. count is the number of
// its values, and bytes the size of their keys and data.
func ScopeSize(count int, bytes int64) int64 { return int64(1+count)*ValueOverhead + bytes }
