package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A scopeRow is a scope in the database. Its seq is 0 if it is not stored yet.
type scopeRow struct {
	seq, version, count, bytes int64
	at                         engine.Scope
}

func loadScope(c *conn, at engine.Scope) (s scopeRow, err error) {
	s.at = at
	found, err := c.one(`SELECT seq, version, count, bytes FROM scopes WHERE session = ? AND name = ?`, at.Session, nameOf(at))
	if err != nil || found == nil {
		return s, err
	}
	for i, to := range []*int64{&s.seq, &s.version, &s.count, &s.bytes} {
		var ok bool
		if *to, ok = found[i].(int64); !ok {
			return s, fmt.Errorf("%w: scope of values", errType)
		}
	}
	return s, nil
}

// nameOf returns the name of a scope in the database.
func nameOf(at engine.Scope) string {
	if at.Run != "" {
		return "run:" + at.Run
	}
	return at.Name
}

// size returns the size of the scope in bytes, as [engine.Quota] counts it.
func (s scopeRow) size() int64 {
	if s.seq == 0 {
		return 0
	}
	return engine.ScopeSize(int(s.count), s.bytes)
}

// store writes a scope. before is the size that it had until now.
func (s *scopeRow) store(w *conn, before int64) (err error) {
	now := time.Now().UnixNano()
	if s.seq == 0 {
		_, s.seq, err = w.exec(`INSERT INTO scopes (session, name, version, count, bytes, changed) VALUES (?, ?, ?, ?, ?, ?)`,
			s.at.Session, nameOf(s.at), s.version, s.count, s.bytes, now)
	} else {
		err = w.run(`UPDATE scopes SET version = ?, count = ?, bytes = ?, changed = ? WHERE seq = ?`, s.version, s.count, s.bytes, now, s.seq)
	}
	w.book.add(s.at.Session, s.size()-before, 0)
	return err
}

// selectPairs reads the unexpired values of a scope.
const selectPairs = `SELECT key, version, at, length(data), iif(?, data, NULL), expires FROM pairs WHERE scope = ? AND (expires = 0 OR expires > ?)`

func decodePair(found []driver.Value) (engine.Value, error) {
	v := engine.Value{}
	var ok [5]bool
	var at, bytes, expires int64
	v.Key, ok[0] = found[0].(string)
	v.Version, ok[1] = found[1].(int64)
	at, ok[2] = found[2].(int64)
	bytes, ok[3] = found[3].(int64)
	v.Data, _ = found[4].([]byte)
	expires, ok[4] = found[5].(int64)
	if ok != [5]bool{true, true, true, true, true} {
		return v, fmt.Errorf("%w: value", errType)
	}
	v.At, v.Bytes = time.Unix(0, at), int(bytes)
	if expires != 0 {
		v.Expires = time.Unix(0, expires)
	}
	return v, nil
}

// pair reads a value, with its data if data is set; zero if the key has no value.
func (s scopeRow) pair(c *conn, key string, data bool) (engine.Value, error) {
	found, err := c.one(selectPairs+` AND key = ?`, flag(data), s.seq, time.Now().UnixNano(), key)
	if err != nil || found == nil {
		return engine.Value{}, err
	}
	return decodePair(found)
}

// A valueStore implements [engine.Values].
type valueStore struct{ *store }

var _ engine.Values = valueStore{}

// Value implements [engine.Values].
func (vs valueStore) Value(ctx context.Context, at engine.Scope, key string) (v engine.Value, err error) {
	err = vs.db.read(ctx, func(c *conn) error {
		s, err := loadScope(c, at)
		if err == nil {
			v, err = s.pair(c, key, true)
		}
		if err == nil && v.Version == 0 {
			err = fmt.Errorf("%w: value %s", engine.ErrNotFound, key)
		}
		return err
	})
	return v, err
}

// Values implements [engine.Values].
func (vs valueStore) Values(ctx context.Context, at engine.Scope, after string, max int, data bool) (all []engine.Value, err error) {
	if max == 0 {
		max = -1
	}
	err = vs.db.read(ctx, func(c *conn) error {
		s, err := loadScope(c, at)
		if err != nil || s.seq == 0 {
			return err
		}
		return c.query(func(found []driver.Value) error {
			v, err := decodePair(found)
			all = append(all, v)
			return err
		}, selectPairs+` AND key > ? ORDER BY key LIMIT ?`, flag(data), s.seq, time.Now().UnixNano(), after, int64(max))
	})
	return all, err
}

// PutValue implements [engine.Values].
func (vs valueStore) PutValue(ctx context.Context, at engine.Scope, v engine.Value, limit engine.ValueLimit) (put engine.Value, err error) {
	err = vs.db.write(ctx, func(w *conn) error {
		put = v
		s, err := loadScope(w, at)
		if err == nil && at.Run != "" {
			err = vs.checkMailbox(w, at)
		}
		if err != nil {
			return err
		}
		if err := s.expire(w); err != nil {
			return err
		}
		before := s.size()
		s.version++
		if put.Key == "" {
			put.Key, put.Version = engine.VersionKey(s.version), 0
		}
		old, err := s.pair(w, put.Key, false)
		if err != nil {
			return err
		}
		if put.Version != engine.AnyVersion && put.Version != old.Version {
			return fmt.Errorf("%w: value %s", engine.ErrConflict, put.Key)
		}

		put.Version, put.Bytes, put.At = s.version, len(put.Data), time.Now()
		s.bytes += int64(len(put.Key) + put.Bytes)
		if old.Version > 0 {
			s.bytes -= int64(len(old.Key) + old.Bytes)
		} else {
			s.count++
		}
		if err := limit.Check(int(s.count), s.bytes); err != nil {
			return err
		}
		if more := engine.ScopeSize(int(s.count), s.bytes) - before; more > 0 {
			if err := vs.makeRoom(w, at.Session, more); err != nil {
				return err
			}
		}
		if err := s.store(w, before); err != nil {
			return err
		}
		if at.Run != "" { // last: after an error that is not SQLite's, the transaction continues
			vs.announce(w, at.Run)
		}
		return w.run(`INSERT OR REPLACE INTO pairs (scope, key, version, at, data, expires) VALUES (?, ?, ?, ?, ?, ?)`,
			s.seq, put.Key, put.Version, put.At.UnixNano(), append([]byte{}, put.Data...), expiryOf(put))
	})
	if err != nil {
		return engine.Value{}, err
	}
	return put, nil
}

// checkMailbox returns an error unless the run of a scope is active in this
// transaction.
func (vs valueStore) checkMailbox(w *conn, at engine.Scope) error {
	found, err := w.one(`SELECT 1 FROM runs WHERE id = ? AND session = ? AND finished IS NULL`, at.Run, at.Session)
	if err == nil && found == nil {
		err = fmt.Errorf("%w: active run %s", engine.ErrNotFound, at.Run)
	}
	return err
}

// announce wakes a run and publishes its message once the transaction is stored.
func (vs valueStore) announce(w *conn, id string) {
	w.after = append(w.after, func() {
		if run, ok := vs.active.light(id); ok {
			vs.feed.Publish(engine.RunEvent(engine.EventMessage, run))
			vs.wake(id)
		}
	})
}

// DeleteValue implements [engine.Values].
func (vs valueStore) DeleteValue(ctx context.Context, at engine.Scope, key string, version int64) error {
	return vs.db.write(ctx, func(w *conn) error {
		s, err := loadScope(w, at)
		if err != nil {
			return err
		}
		old, err := s.pair(w, key, false)
		switch {
		case err != nil:
			return err
		case old.Version == 0:
			return fmt.Errorf("%w: value %s", engine.ErrNotFound, key)
		case version != engine.AnyVersion && version != old.Version:
			return fmt.Errorf("%w: value %s", engine.ErrConflict, key)
		}
		return s.drop(w, ` AND key = ?`, key)
	})
}

// DropValues implements [engine.Values].
func (vs valueStore) DropValues(ctx context.Context, at engine.Scope, through string) error {
	return vs.db.write(ctx, func(w *conn) error {
		s, err := loadScope(w, at)
		if err != nil || s.seq == 0 {
			return err
		}
		if through == "" {
			return s.remove(w)
		}
		return s.drop(w, ` AND key <= ?`, through)
	})
}

// expiryOf returns the stored expiry of a value; 0: never.
func expiryOf(v engine.Value) int64 {
	if v.Expires.IsZero() {
		return 0
	}
	return max(1, v.Expires.UnixNano())
}

// expire removes the expired values of the scope.
func (s *scopeRow) expire(w *conn) error {
	now := time.Now().UnixNano()
	found, err := w.one(`SELECT 1 FROM pairs WHERE scope = ? AND expires <> 0 AND expires <= ?`, s.seq, now)
	if err != nil || found == nil {
		return err
	}
	return s.drop(w, ` AND expires <> 0 AND expires <= ?`, now)
}

// Scopes implements [engine.Values].
func (vs valueStore) Scopes(ctx context.Context, session, prefix string) ([]engine.ScopeInfo, error) {
	return readAll(ctx, vs.db, func(found []driver.Value) (engine.ScopeInfo, error) {
		var s engine.ScopeInfo
		s.Session, _ = found[0].(string)
		s.Name, _ = found[1].(string)
		s.Count, s.Bytes, s.Changed = int(whole(found[2])), whole(found[3]), time.Unix(0, whole(found[4]))
		return s, nil
	}, `SELECT session, name, count, bytes, changed FROM scopes WHERE substr(name, 1, ?) = ? AND substr(name, 1, 4) <> 'run:' AND (? = '' OR session = ?) ORDER BY session, name`,
		int64(utf8.RuneCountInString(prefix)), prefix, session, session)
}

// drop removes the values that match a condition.
func (s *scopeRow) drop(w *conn, condition string, args ...driver.Value) error {
	before := s.size()
	args = append([]driver.Value{s.seq}, args...)
	found, err := w.one(`SELECT count(*), ifnull(sum(length(CAST(key AS BLOB)) + length(data)), 0) FROM pairs WHERE scope = ?`+condition, args...)
	if err != nil {
		return err
	}
	count, _ := found[0].(int64)
	bytes, _ := found[1].(int64)
	s.count, s.bytes = s.count-count, s.bytes-bytes
	if err := s.store(w, before); err != nil {
		return err
	}
	return w.run(`DELETE FROM pairs WHERE scope = ?`+condition, args...)
}

// remove removes a scope with its values.
func (s scopeRow) remove(w *conn) error {
	w.book.add(s.at.Session, -s.size(), 0)
	if err := w.run(`DELETE FROM pairs WHERE scope = ?`, s.seq); err != nil {
		return err
	}
	return w.run(`DELETE FROM scopes WHERE seq = ?`, s.seq)
}

// expireValues removes all expired values.
func (vs valueStore) expireValues(ctx context.Context) error {
	const condition = ` FROM pairs JOIN scopes ON scopes.seq = pairs.scope WHERE expires <> 0 AND expires <= ?`
	scopes, err := readAll(ctx, vs.db, func(found []driver.Value) (engine.Scope, error) {
		session, _ := found[0].(string)
		name, _ := found[1].(string)
		return engine.Scope{Session: session, Name: name}, nil
	}, `SELECT DISTINCT session, name`+condition, time.Now().UnixNano())

	for _, at := range scopes {
		if err != nil {
			return err
		}
		err = vs.db.write(ctx, func(w *conn) error {
			s, err := loadScope(w, at)
			if err != nil {
				return err
			}
			return s.expire(w)
		})
	}
	return err
}

// pruneValues removes expired values, and those that ret does not keep.
func (vs valueStore) pruneValues(ctx context.Context, ret engine.Retention) error {
	if err := vs.expireValues(ctx); err != nil {
		return err
	}
	latest := ret.Values
	if ret.Ephemeral != nil && ret.EphemeralValues.After(latest) {
		latest = ret.EphemeralValues
	}
	const condition = ` FROM scopes WHERE changed < ? AND session <> '' AND substr(name, 1, 4) <> 'run:'`
	old, err := readAll(ctx, vs.db, func(found []driver.Value) (engine.Scope, error) {
		session, _ := found[0].(string)
		name, _ := found[1].(string)
		return engine.Scope{Session: session, Name: name}, nil
	}, `SELECT session, name`+condition, nanos(latest))

	for _, at := range old {
		if err == nil {
			err = vs.db.write(ctx, func(w *conn) error { return pruneScope(w, at, ret) })
		}
	}
	return err
}

// pruneScope removes a scope unless ret keeps it.
func pruneScope(w *conn, at engine.Scope, ret engine.Retention) error {
	found, err := w.one(`SELECT changed FROM scopes WHERE session = ? AND name = ?`, at.Session, at.Name)
	if err != nil || found == nil || ret.KeepsValues(at, time.Unix(0, whole(found[0]))) {
		return err
	}
	if ret.IsEphemeral(at.Session) {
		active, err := w.one(`SELECT 1 FROM runs INDEXED BY runs_active WHERE session = ? AND finished IS NULL`, at.Session)
		if err != nil || active != nil {
			return err
		}
	}
	s, err := loadScope(w, at)
	if err != nil {
		return err
	}
	return s.remove(w)
}

// whole returns the integer in a column, 0 for anything else.
func whole(v driver.Value) int64 {
	n, _ := v.(int64)
	return n
}
