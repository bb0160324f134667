package postgres

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/internal/ledger"
)

// A charge is a change in the space that an owner uses, and in the evictable part of that space.
type charge struct {
	owner           string
	used, evictable int64
}

// charge records that the size of a record changes from before to size. could and evictable say
// whether the record could be evicted until now, and whether it can be from now on.
func (t *tx) charge(owner string, size int64, evictable bool, before int64, could bool) {
	c := charge{owner: owner, used: size - before}
	if evictable {
		c.evictable += size
	}
	if could {
		c.evictable -= before
	}
	if c.used != 0 || c.evictable != 0 {
		t.charges = append(t.charges, c)
	}
}

// settle queues the charges of the transaction. Each connection adds to rows of its own,
// so that transactions of one owner do not wait for each other.
func (t *tx) settle() {
	sums, total := map[string]charge{}, int64(0)
	for _, c := range t.charges {
		sum := sums[c.owner]
		sums[c.owner] = charge{c.owner, sum.used + c.used, sum.evictable + c.evictable}
		total += c.used
	}
	var all []charge
	for _, c := range sums {
		if c.used != 0 || c.evictable != 0 {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b charge) int { return cmp.Compare(a.owner, b.owner) })

	for i, c := range all {
		if i > 0 {
			total = 0 // it is added once
		}
		t.queue(`WITH total AS (
				INSERT INTO totals SELECT pg_backend_pid() % 64, $4::bigint WHERE $4 <> 0 ON CONFLICT (part) DO UPDATE SET used = totals.used + excluded.used
			) INSERT INTO accounts VALUES ($1, pg_backend_pid() % 64, $2, $3)
			ON CONFLICT (owner, part) DO UPDATE SET used = accounts.used + excluded.used, evictable = accounts.evictable + excluded.evictable`,
			c.owner, c.used, c.evictable, total)
	}
	t.charges = nil
}

// A room is the quota for a new record, with the space that its owner and all owners together
// use.
type room struct {
	quota       engine.Quota
	owner       string
	total, used int64
}

// readRoom adds the queries of a room to a batch.
func (d *database) readRoom(b *pgx.Batch, session string, to *room) {
	quota := d.quotaNow()
	*to = room{quota: quota, owner: quota.OwnerOf(session)}
	if quota.Max == 0 && quota.Each == 0 {
		return
	}
	b.Queue("SELECT (SELECT coalesce(sum(used), 0)::bigint FROM totals), (SELECT coalesce(sum(used), 0)::bigint FROM accounts WHERE owner = $1)", to.owner).
		QueryRow(func(found pgx.Row) error { return found.Scan(&to.total, &to.used) })
}

// apart is the free space above which concurrent transactions with records of that size need not
// wait for each other. Closer to the quota, they evict one after the other.
func apart(size int64) int64 { return 64 * (size + groupBytes) }

// wide reports whether there is space for a record of that size, whatever others
// store at the same time.
func (r room) wide(size int64) bool {
	most := cmp.Or(r.quota.Max, math.MaxInt64/4)
	each := cmp.Or(r.quota.Each, most)
	return r.total+apart(size) <= most && r.used+apart(size) <= each
}

// makeRoom evicts records until there is space for size more bytes of a session.
func (t *tx) makeRoom(r room, session string, size int64) error {
	if size <= 0 || r.wide(size) {
		return nil
	}
	if _, err := t.conn.Exec(t.ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockRoom); err != nil {
		return err
	}

	accounts, err := t.ledger(r)
	if err != nil {
		return err
	}
	eviction, err := accounts.Room(r.owner, size)
	if eviction == nil {
		return err
	}
	for after := (spare{}); !eviction.Done(); {
		more, err := t.spares(after)
		if err != nil {
			return err
		}
		if len(more) == 0 {
			break
		}
		for _, old := range more {
			if !eviction.Done() && eviction.Take(old.owner, old.size) {
				if err := t.evict(old); err != nil {
					return err
				}
			}
		}
		after = more[len(more)-1]
	}
	if !eviction.Enough() {
		return &engine.LimitError{Err: engine.ErrRecordLimit, Max: int(min(cmp.Or(r.quota.Max, math.MaxInt), math.MaxInt))}
	}
	return nil
}

// ledger reads how much space each owner uses. In the ledger, owners take the place of sessions.
func (t *tx) ledger(r room) (*ledger.Ledger, error) {
	quota := r.quota
	quota.Owner = nil
	l := ledger.New(quota)
	rows, err := t.conn.Query(t.ctx, "SELECT owner, sum(used)::bigint, sum(evictable)::bigint FROM accounts GROUP BY owner")
	if err != nil {
		return nil, err
	}
	var c charge
	_, err = pgx.ForEachRow(rows, []any{&c.owner, &c.used, &c.evictable}, func() error {
		l.Add(c.owner, c.used, c.evictable)
		return nil
	})
	for _, c := range t.charges { // charges of this transaction
		l.Add(c.owner, c.used, c.evictable)
	}
	return l, err
}

// A spare is a run or a schedule that may be evicted.
type spare struct {
	since, seq int64 // when it ended or was disabled, and its seq
	table      string
	owner      string
	size       int64
}

// sparesAtOnce is the number of evictable records that one query reads.
const sparesAtOnce = 500

// spares returns the evictable records after another one, oldest first.
func (t *tx) spares(after spare) (found []spare, err error) {
	rows, err := t.conn.Query(t.ctx, `
		(SELECT finished, 'runs', seq, owner, size FROM runs
			WHERE finished IS NOT NULL AND notice <> 1 AND finished >= $1 AND (finished, 'runs', seq) > ($1, $2::text, $3) ORDER BY finished, seq LIMIT $4)
		UNION ALL
		(SELECT changed, 'schedules', seq, owner, size FROM schedules
			WHERE NOT enabled AND changed >= $1 AND (changed, 'schedules', seq) > ($1, $2::text, $3) ORDER BY changed, seq LIMIT $4)
		ORDER BY 1, 2, 3 LIMIT $4`, after.since, after.table, after.seq, sparesAtOnce)
	if err != nil {
		return nil, err
	}
	var s spare
	_, err = pgx.ForEachRow(rows, []any{&s.since, &s.table, &s.seq, &s.owner, &s.size}, func() error {
		found = append(found, s)
		return nil
	})
	return found, err
}

// evict removes a record.
func (t *tx) evict(s spare) error {
	if s.table == "schedules" {
		return t.dropSchedules("seq = $1 AND NOT enabled", s.seq)
	}
	_, err := t.dropRuns("r.seq = $1", s.seq)
	return err
}

// dropRuns removes terminal runs.
func (t *tx) dropRuns(where string, args ...any) (int, error) {
	gone, err := t.runs("DELETE FROM runs r WHERE "+where+" RETURNING "+columns, args...)
	for _, r := range gone {
		t.charge(r.owner, 0, false, r.size, r.Evictable())
		t.publish(engine.EventPurged, r.Run)
	}
	if err != nil {
		return 0, fmt.Errorf("removing runs: %w", err)
	}
	return len(gone), nil
}
