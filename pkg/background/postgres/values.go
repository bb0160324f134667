package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// pairColumns are the columns that scanValue reads.
const pairColumns = "p.key, p.version, p.at, p.expires, length(p.data)"

// fresh returns the SQL condition that a value has not expired.
func fresh(now int) string { return "(p.expires IS NULL OR p.expires > " + serverNow(now) + ")" }

// scanValue reads a value, and further columns into more.
func scanValue(from pgx.Row, more ...any) (v engine.Value, err error) {
	var key []byte
	var at int64
	var expires *int64
	err = from.Scan(append([]any{&key, &v.Version, &at, &expires, &v.Bytes}, more...)...)
	v.Key, v.At, v.Expires = string(key), instant(&at), instant(expires)
	return v, err
}

// A valueStore implements [engine.Values].
type valueStore struct{ *database }

// Value implements [engine.Values].
func (vs valueStore) Value(ctx context.Context, at engine.Scope, key string) (engine.Value, error) {
	var data []byte
	v, err := scanValue(vs.pool.QueryRow(ctx, "SELECT "+pairColumns+", p.data FROM scopes s JOIN pairs p ON p.scope = s.seq WHERE s.session = $2 AND s.name = $3 AND s.run = $4 AND p.key = $5 AND "+fresh(1),
		vs.now(), at.Session, at.Name, at.Run, []byte(key)), &data)
	if errors.Is(err, pgx.ErrNoRows) {
		return engine.Value{}, fmt.Errorf("%w: value %s", engine.ErrNotFound, key)
	}
	v.Data = data
	return v, vs.fail(err)
}

// Values implements [engine.Values].
func (vs valueStore) Values(ctx context.Context, at engine.Scope, after string, max int, data bool) (found []engine.Value, err error) {
	var limit *int
	if max > 0 {
		limit = &max
	}
	column := "NULL::bytea"
	if data {
		column = "p.data"
	}

	rows, err := vs.pool.Query(ctx, "SELECT "+pairColumns+", "+column+" FROM scopes s JOIN pairs p ON p.scope = s.seq WHERE s.session = $2 AND s.name = $3 AND s.run = $4 AND p.key > $5 AND "+fresh(1)+" ORDER BY p.key LIMIT $6",
		vs.now(), at.Session, at.Name, at.Run, []byte(after), limit)
	if err != nil {
		return nil, vs.fail(err)
	}

	defer rows.Close()
	for rows.Next() {
		var data []byte
		v, err := scanValue(rows, &data)
		if err != nil {
			return nil, err
		}
		v.Data = data
		found = append(found, v)
	}
	return found, vs.fail(rows.Err())
}

// A scope is the row of an [engine.Scope].
type scope struct {
	seq            int64
	owner          string
	version, count int64
	bytes, changed int64
}

func (s scope) size() int64 { return engine.ScopeSize(int(s.count), s.bytes) }

// lockScope locks the row of a scope, and removes its expired values. It returns nil if the
// scope has no row.
func (t *tx) lockScope(at engine.Scope) (*scope, error) {
	var s scope
	err := t.row("SELECT seq, owner, version, count, bytes, changed FROM scopes WHERE session = $1 AND name = $2 AND run = $3 FOR UPDATE", at.Session, at.Name, at.Run).
		Scan(&s.seq, &s.owner, &s.version, &s.count, &s.bytes, &s.changed)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	before := s
	if err := t.removePairs(&s, "expires <= "+serverNow(2), t.db.now()); err != nil || s == before {
		return &s, err
	}
	return &s, t.storeScope(s, before.size())
}

// removePairs removes values of a scope.
func (t *tx) removePairs(s *scope, where string, args ...any) error {
	var count, bytes int64
	err := t.row("WITH gone AS (DELETE FROM pairs WHERE scope = $1 AND "+where+" RETURNING length(key) + length(data) AS size) SELECT count(*), coalesce(sum(size), 0)::bigint FROM gone",
		append([]any{s.seq}, args...)...).Scan(&count, &bytes)
	s.count, s.bytes = s.count-count, s.bytes-bytes
	return err
}

// storeScope stores the row of a scope. before is the size that the scope had until now.
func (t *tx) storeScope(s scope, before int64) error {
	_, err := t.conn.Exec(t.ctx, "UPDATE scopes SET version = $2, count = $3, bytes = $4, changed = $5 WHERE seq = $1", s.seq, s.version, s.count, s.bytes, s.changed)
	t.charge(s.owner, s.size(), false, before, false)
	return err
}

// PutValue implements [engine.Values].
func (vs valueStore) PutValue(ctx context.Context, at engine.Scope, v engine.Value, limit engine.ValueLimit) (engine.Value, error) {
	var room room
	var now int64
	var receiver *row
	put := v
	err := vs.write(ctx, func(b *pgx.Batch) {
		receiver = nil
		b.Queue("SELECT "+serverNow(1), vs.now()).QueryRow(func(found pgx.Row) error { return found.Scan(&now) })
		if at.Run != "" {
			b.Queue("SELECT "+columns+" FROM runs r WHERE r.id = $1 AND r.session = $2 AND r.finished IS NULL FOR UPDATE OF r", at.Run, at.Session).QueryRow(func(found pgx.Row) error {
				r, err := scan(found)
				if errors.Is(err, pgx.ErrNoRows) {
					return nil
				}
				receiver = &r
				return err
			})
		}
		b.Queue("INSERT INTO scopes (session, name, run, owner, version, count, bytes, changed) VALUES ($1, $2, $3, $4, 0, 0, 0, 0) ON CONFLICT DO NOTHING", at.Session, at.Name, at.Run, vs.quotaNow().OwnerOf(at.Session))
		vs.readRoom(b, at.Session, &room)
	}, func(t *tx) error {
		if at.Run != "" && receiver == nil {
			return fmt.Errorf("%w: active run %s", engine.ErrNotFound, at.Run)
		}
		s, err := t.lockScope(at)
		if err != nil {
			return err
		}
		if s == nil { // removed meanwhile
			return fmt.Errorf("%w: values of %s", engine.ErrConflict, at.Session)
		}
		before := s.size()
		if s.changed == 0 {
			before = 0
		}
		if put, err = t.put(s, v, limit, now); err != nil {
			return err
		}
		if err := t.makeRoom(room, at.Session, s.size()-before); err != nil {
			return err
		}
		if err := t.storeScope(*s, before); err != nil {
			return err
		}
		if receiver == nil {
			return nil
		}
		t.publish(engine.EventMessage, receiver.Run)
		t.resume("r.seq = $1", receiver.seq)
		return t.flush()
	})
	if err != nil {
		return engine.Value{}, err
	}
	return put, nil
}

// put stores a value of a locked scope.
func (t *tx) put(s *scope, v engine.Value, limit engine.ValueLimit, now int64) (engine.Value, error) {
	version := s.version + 1
	if v.Key == "" {
		v.Key, v.Version = engine.VersionKey(version), 0
	}
	var old, size int64
	err := t.row("SELECT version, length(data) FROM pairs WHERE scope = $1 AND key = $2", s.seq, []byte(v.Key)).Scan(&old, &size)
	switch {
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return v, err
	case v.Version != engine.AnyVersion && v.Version != old:
		return v, fmt.Errorf("%w: value %s", engine.ErrConflict, v.Key)
	}

	v.Version, v.Data, v.Bytes, v.At = version, bytes.Clone(v.Data), len(v.Data), time.Unix(0, now)
	s.version, s.changed = version, now
	if s.bytes += int64(len(v.Data)) - size; old == 0 {
		s.count, s.bytes = s.count+1, s.bytes+int64(len(v.Key))
	}
	if err := limit.Check(int(s.count), s.bytes); err != nil {
		return v, err
	}
	_, err = t.conn.Exec(t.ctx, `INSERT INTO pairs VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (scope, key) DO UPDATE SET version = excluded.version, at = excluded.at, expires = excluded.expires, data = excluded.data`,
		s.seq, []byte(v.Key), v.Version, now, nanos(v.Expires), append([]byte{}, v.Data...))
	return v, err
}

// DeleteValue implements [engine.Values].
func (vs valueStore) DeleteValue(ctx context.Context, at engine.Scope, key string, version int64) error {
	return vs.write(ctx, nil, func(t *tx) error {
		s, err := t.lockScope(at)
		if err != nil {
			return err
		}
		var stored, now int64
		if s != nil {
			err = t.row("SELECT version, "+serverNow(3)+" FROM pairs WHERE scope = $1 AND key = $2", s.seq, []byte(key), vs.now()).Scan(&stored, &now)
		}
		switch {
		case s == nil || errors.Is(err, pgx.ErrNoRows):
			return fmt.Errorf("%w: value %s", engine.ErrNotFound, key)
		case err != nil:
			return err
		case version != engine.AnyVersion && version != stored:
			return fmt.Errorf("%w: value %s", engine.ErrConflict, key)
		}
		return t.drop(*s, now, "key = $2", []byte(key))
	})
}

// drop removes values of a locked scope.
func (t *tx) drop(s scope, now int64, where string, args ...any) error {
	before := s.size()
	if err := t.removePairs(&s, where, args...); err != nil {
		return err
	}
	s.changed = now
	return t.storeScope(s, before)
}

// DropValues implements [engine.Values].
func (vs valueStore) DropValues(ctx context.Context, at engine.Scope, through string) error {
	return vs.write(ctx, nil, func(t *tx) error {
		if through == "" {
			t.dropScopes("session = $1 AND name = $2 AND run = $3", at.Session, at.Name, at.Run)
			return t.flush()
		}
		s, err := t.lockScope(at)
		if err != nil || s == nil {
			return err
		}
		var now int64
		if err := t.row("SELECT "+serverNow(1), vs.now()).Scan(&now); err != nil {
			return err
		}
		return t.drop(*s, now, "key <= $2", []byte(through))
	})
}

// dropScopes makes the next flush remove scopes.
func (t *tx) dropScopes(where string, args ...any) {
	t.queue("DELETE FROM scopes WHERE "+where+" RETURNING owner, count, bytes", args...).Query(func(rows pgx.Rows) error {
		var s scope
		_, err := pgx.ForEachRow(rows, []any{&s.owner, &s.count, &s.bytes}, func() error {
			t.charge(s.owner, 0, false, s.size(), false)
			return nil
		})
		return err
	})
}

// Scopes implements [engine.Values].
func (vs valueStore) Scopes(ctx context.Context, session, prefix string) (found []engine.ScopeInfo, err error) {
	rows, err := vs.pool.Query(ctx, "SELECT session, name, count, bytes, changed FROM scopes WHERE run = '' AND starts_with(name, $1) AND ($2 = '' OR session = $2) ORDER BY session, name", prefix, session)
	if err != nil {
		return nil, vs.fail(err)
	}
	var s engine.ScopeInfo
	var changed int64
	_, err = pgx.ForEachRow(rows, []any{&s.Session, &s.Name, &s.Count, &s.Bytes, &changed}, func() error {
		s.Changed = instant(&changed)
		found = append(found, s)
		return nil
	})
	return found, vs.fail(err)
}

// pruneValues removes expired values, and those that ret does not keep.
func (t *tx) pruneValues(ret engine.Retention) error {
	rows, err := t.conn.Query(t.ctx, `SELECT s.seq, s.session, s.name, s.run, s.changed,
		EXISTS (SELECT FROM pairs p WHERE p.scope = s.seq AND p.expires <= `+serverNow(1)+`),
		EXISTS (SELECT FROM runs r WHERE r.session = s.session AND r.finished IS NULL) FROM scopes s ORDER BY s.seq`, t.db.now())
	if err != nil {
		return err
	}

	var seq, changed int64
	var at engine.Scope
	var stale, active bool
	var gone, unchanged []int64
	var expired []engine.Scope
	_, err = pgx.ForEachRow(rows, []any{&seq, &at.Session, &at.Name, &at.Run, &changed, &stale, &active}, func() error {
		switch {
		case !ret.KeepsValues(at, time.Unix(0, changed)) && !(ret.IsEphemeral(at.Session) && active):
			gone, unchanged = append(gone, seq), append(unchanged, changed)
		case stale:
			expired = append(expired, at)
		}
		return nil
	})
	if err != nil {
		return err
	}

	for _, at := range expired {
		if _, err := t.lockScope(at); err != nil {
			return err
		}
	}
	t.dropScopes("(seq, changed) IN (SELECT * FROM unnest($1::bigint[], $2::bigint[]))", gone, unchanged)
	return t.flush()
}
