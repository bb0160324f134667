package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A scope holds the values of an [engine.Scope].
type scope struct {
	version int64 // version of the last write
	values  []engine.Value
	bytes   int64
	changed time.Time
	expires time.Time // time before which no value expires; zero: none ever expires
	recordShare
}

// at returns the position of a key's value, and whether it exists.
func (s *scope) at(key string) (int, bool) {
	return slices.BinarySearchFunc(s.values, key, func(v engine.Value, key string) int { return strings.Compare(v.Key, key) })
}

// get returns the value of a key; zero if the key has none.
func (s *scope) get(key string) engine.Value {
	if i, ok := s.at(key); ok {
		return s.values[i]
	}
	return engine.Value{}
}

func sizeOf(v engine.Value) int64 { return int64(len(v.Key) + len(v.Data)) }

// scope returns a scope without its expired values; nil if it does not exist.
func (st *store) scope(at engine.Scope) *scope {
	s, now := st.scopes[at], time.Now()
	if s == nil || s.expires.IsZero() || s.expires.After(now) {
		return s
	}

	s.expires = time.Time{}
	s.values = slices.DeleteFunc(s.values, func(v engine.Value) bool {
		if v.Expired(now) {
			s.bytes -= sizeOf(v)
			return true
		}
		if !v.Expires.IsZero() && (s.expires.IsZero() || v.Expires.Before(s.expires)) {
			s.expires = v.Expires
		}
		return false
	})
	st.recount(at.Session, &s.recordShare, engine.ScopeSize(len(s.values), s.bytes), false)
	return s
}

// A valueStore implements [engine.Values].
type valueStore struct{ *store }

var _ engine.Values = valueStore{}

// Value implements [engine.Values].
func (vs valueStore) Value(_ context.Context, at engine.Scope, key string) (engine.Value, error) {
	vs.mu.Lock()
	defer vs.mu.Unlock()

	if s := vs.scope(at); s != nil && s.get(key).Version > 0 {
		return s.get(key), nil
	}
	return engine.Value{}, fmt.Errorf("%w: value %s", engine.ErrNotFound, key)
}

// Values implements [engine.Values].
func (vs valueStore) Values(_ context.Context, at engine.Scope, after string, max int, data bool) (found []engine.Value, err error) {
	vs.mu.Lock()
	defer vs.mu.Unlock()

	s := vs.scope(at)
	if s == nil {
		return nil, nil
	}
	from, there := s.at(after)
	if there {
		from++
	}
	for _, v := range s.values[from:] {
		if !data {
			v.Data = nil
		}
		if found = append(found, v); len(found) == max {
			break
		}
	}
	return found, nil
}

// PutValue implements [engine.Values].
func (vs valueStore) PutValue(_ context.Context, at engine.Scope, v engine.Value, limit engine.ValueLimit) (engine.Value, error) {
	vs.mu.Lock()
	defer vs.mu.Unlock()

	r := vs.byID[at.Run]
	if at.Run != "" && (r == nil || r.run.Session != at.Session || r.run.Status.Terminal()) {
		return engine.Value{}, fmt.Errorf("%w: active run %s", engine.ErrNotFound, at.Run)
	}
	s := vs.scope(at)
	if s == nil {
		s = &scope{}
	}
	version := s.version + 1
	if v.Key == "" {
		v.Key, v.Version = engine.VersionKey(version), 0
	}
	old := s.get(v.Key)
	if v.Version != engine.AnyVersion && v.Version != old.Version {
		return engine.Value{}, fmt.Errorf("%w: value %s", engine.ErrConflict, v.Key)
	}

	v.Version, v.Data, v.Bytes, v.At = version, bytes.Clone(v.Data), len(v.Data), time.Now()
	count, size := len(s.values), s.bytes+sizeOf(v)
	if old.Version > 0 {
		size -= sizeOf(old)
	} else {
		count++
	}
	if err := limit.Check(count, size); err != nil {
		return engine.Value{}, err
	}
	if more := engine.ScopeSize(count, size) - s.used; more > 0 {
		if err := vs.makeRoom(at.Session, more); err != nil {
			return engine.Value{}, err
		}
	}

	i, there := s.at(v.Key)
	if there {
		s.values[i] = v
	} else {
		s.values = slices.Insert(s.values, i, v)
	}
	s.version, s.bytes, s.changed = version, size, v.At
	if !v.Expires.IsZero() && (s.expires.IsZero() || v.Expires.Before(s.expires)) {
		s.expires = v.Expires
	}
	vs.scopes[at] = s
	vs.recount(at.Session, &s.recordShare, engine.ScopeSize(count, size), false)
	if r != nil {
		vs.publish(engine.EventMessage, r)
		vs.resume(r)
	}
	return v, nil
}

// DeleteValue implements [engine.Values].
func (vs valueStore) DeleteValue(_ context.Context, at engine.Scope, key string, version int64) error {
	vs.mu.Lock()
	defer vs.mu.Unlock()

	s := vs.scope(at)
	if s == nil || s.get(key).Version == 0 {
		return fmt.Errorf("%w: value %s", engine.ErrNotFound, key)
	}
	if version != engine.AnyVersion && version != s.get(key).Version {
		return fmt.Errorf("%w: value %s", engine.ErrConflict, key)
	}
	i, _ := s.at(key)
	s.drop(vs.store, at, i, i+1)
	return nil
}

// DropValues implements [engine.Values].
func (vs valueStore) DropValues(_ context.Context, at engine.Scope, through string) error {
	vs.mu.Lock()
	defer vs.mu.Unlock()

	s := vs.scopes[at]
	switch {
	case s == nil:
	case through == "":
		s.dropAll(vs.store, at)
	default:
		end, there := s.at(through)
		if there {
			end++
		}
		s.drop(vs.store, at, 0, end)
	}
	return nil
}

// Scopes implements [engine.Values].
func (vs valueStore) Scopes(_ context.Context, session, prefix string) (found []engine.ScopeInfo, err error) {
	vs.mu.Lock()
	defer vs.mu.Unlock()

	for at, s := range vs.scopes {
		if at.Run == "" && strings.HasPrefix(at.Name, prefix) && (session == "" || session == at.Session) {
			found = append(found, engine.ScopeInfo{Scope: at, Count: len(s.values), Bytes: s.bytes, Changed: s.changed})
		}
	}
	slices.SortFunc(found, func(a, b engine.ScopeInfo) int {
		return cmp.Or(strings.Compare(a.Session, b.Session), strings.Compare(a.Name, b.Name))
	})
	return found, nil
}

// drop removes the values at the positions [from, end).
func (s *scope) drop(st *store, at engine.Scope, from, end int) {
	for _, v := range s.values[from:end] {
		s.bytes -= sizeOf(v)
	}
	s.values, s.changed = slices.Delete(s.values, from, end), time.Now()
	st.recount(at.Session, &s.recordShare, engine.ScopeSize(len(s.values), s.bytes), false)
}

func (s *scope) dropAll(st *store, at engine.Scope) {
	st.recount(at.Session, &s.recordShare, 0, false)
	delete(st.scopes, at)
}

// pruneValues removes expired values, and those that ret does not keep.
func (st *store) pruneValues(ret engine.Retention) {
	for at := range st.scopes {
		s := st.scope(at)
		if !ret.KeepsValues(at, s.changed) && !(ret.IsEphemeral(at.Session) && st.isActive(at.Session)) {
			s.dropAll(st, at)
		}
	}
}

// isActive reports whether a session has an active run.
func (st *store) isActive(session string) bool {
	return slices.ContainsFunc(st.runs, func(r *record) bool { return r.run.Session == session && !r.run.Status.Terminal() })
}
