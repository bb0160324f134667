package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// Submit implements [engine.Worker].
func (w *worker) Submit(ctx context.Context, run engine.Run, permits *engine.Permits) error {
	run.Status = engine.StatusQueued
	r := row{Run: run}
	if permits == nil || permits.Queue {
		return w.store(ctx, &r, permits, engine.ErrSessionLimit, engine.EventQueued)
	}

	r.epoch = w.epoch
	w.claims(run.ID)
	err := w.store(ctx, &r, permits, engine.ErrSessionLimit, engine.EventQueued)
	if err != nil {
		w.unclaims(run.ID, true)
	}
	return err
}

// Adopt implements [engine.Worker].
func (w *worker) Adopt(ctx context.Context, run engine.Run, permits engine.Permits) (engine.Lease, error) {
	run.Status, run.Attempt = engine.StatusRunning, 1
	r := row{Run: run, epoch: w.epoch, turn: 1}
	if err := w.store(ctx, &r, &permits, engine.ErrParkedLimit, engine.EventStarted); err != nil {
		return nil, err
	}
	return &lease{worker: w, seq: r.seq, turn: r.turn, run: r.Run}, nil
}

// store stores a new run if it is admitted. It first tries a single statement, and looks for the
// reason only if that stores nothing.
func (w *worker) store(ctx context.Context, r *row, permits *engine.Permits, session error, kind engine.EventKind) error {
	if w.stale() {
		return w.over()
	}
	quota := w.db.quotaNow()
	r.owner, r.size = quota.OwnerOf(r.Session), r.Size()
	if r.Parent == "" && r.Schedule == "" {
		stored, err := w.storeAtOnce(ctx, r, quota, permits)
		if err != nil && !collided(err) {
			return w.db.fail(err)
		}
		if stored {
			w.db.publish(newRunEvent(kind, r))
			return nil
		}
	}

	var a admission
	return w.write(ctx, func(b *pgx.Batch) {
		a = admission{run: r.Run, owner: r.owner, permits: permits, session: session}
		take(b, a.lock())
		a.read(b)
		w.db.readRoom(b, r.Session, &a.room)
	}, func(t *tx, _ time.Time) error {
		if err := a.refusal(); err != nil {
			return err
		}
		if err := t.makeRoom(a.room, r.Session, r.size); err != nil {
			return err
		}
		t.events = append(t.events, newRunEvent(kind, r))
		args, err := w.insertArgs(*r, 0, 0)
		if err != nil {
			return err
		}
		stored, err := r.stored(t.row(fmt.Sprintf(insertAndCharge, ""), args...))
		if err == nil && !stored {
			err = &pgconn.PgError{Code: uniqueViolation, Message: "the run, or its key, was stored meanwhile"}
		}
		return err
	})
}

// newRunEvent returns the event of a new run.
func newRunEvent(kind engine.EventKind, r *row) engine.Event {
	event := engine.RunEvent(kind, r.Run)
	event.Claimed = r.epoch != 0
	return event
}

// storeAtOnce stores a run if it is admitted and no record has to be evicted for it.
func (w *worker) storeAtOnce(ctx context.Context, r *row, quota engine.Quota, permits *engine.Permits) (stored bool, err error) {
	a := admission{run: r.Run, owner: r.owner, permits: permits}
	below := func(most, ahead int64) int64 {
		if most == 0 {
			return 0
		}
		return max(1, most-apart(r.size)+r.size-ahead)
	}
	queue := func(b *pgx.Batch, sql string, ahead int64) {
		args, problem := w.insertArgs(*r, below(quota.Max, ahead), below(cmp.Or(quota.Each, quota.Max), ahead))
		err = problem
		condition, more := a.permitted(len(args) + 1)
		b.Queue(fmt.Sprintf(sql, condition), append(args, more...)...).QueryRow(func(found pgx.Row) (err error) {
			stored, err = r.stored(found)
			return err
		})
	}

	problem := w.db.writes.share(&joint{
		ctx: ctx, size: r.size, permit: a.lock(),
		first: func(b *pgx.Batch, ahead int64) { queue(b, insertRun, ahead) },
		do: func(t *tx) error {
			if stored {
				t.charge(r.owner, r.size, false, 0, false)
			}
			return err
		},
		alone: func() error {
			var b pgx.Batch
			take(&b, a.lock())
			queue(&b, insertAndCharge, 0)
			return cmp.Or(err, w.db.sendBatch(ctx, &b))
		},
	})
	return stored && problem == nil, problem
}

// stored reads the result of insertRun.
func (r *row) stored(found pgx.Row) (bool, error) {
	var heartbeat *int64
	err := found.Scan(&r.seq, &heartbeat)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if heartbeat != nil {
		r.HeartbeatAt = instant(heartbeat)
	}
	return err == nil, err
}

// An admission is the data that decides whether a run is stored.
type admission struct {
	run     engine.Run
	owner   string
	permits *engine.Permits
	session error // error if the session has no permit left

	exists    bool
	keyed     string // id of the run with the same key
	scheduled bool
	parent    *row
	children  int
	active    []string // ids of the runs that hold the same permits
	owned     int
	room      room
}

// limited reports whether permits limit the run.
func (a *admission) limited() bool {
	p := a.permits
	return p != nil && p.Session+p.Parked+p.Owner > 0
}

// A permitLock is held while a run is stored, so that only one transaction at a time counts
// the permits of its session or owner. The zero value is no lock.
type permitLock struct {
	kind int // [lockSession] or [lockOwner]
	name string
}

// lock returns the lock of the permits that limit the run.
func (a *admission) lock() permitLock {
	switch {
	case !a.limited():
		return permitLock{}
	case a.permits.Owner > 0:
		return permitLock{lockOwner, a.owner}
	}
	return permitLock{lockSession, a.run.Session}
}

// take adds the locks to a batch, in one statement and in a fixed order.
func take(b *pgx.Batch, locks ...permitLock) {
	var kinds []int
	var names []string
	for _, l := range locks {
		if l.kind != 0 {
			kinds, names = append(kinds, l.kind), append(names, l.name)
		}
	}
	if len(kinds) > 0 {
		b.Queue(`SELECT pg_advisory_xact_lock_shared($1, 0), pg_advisory_xact_lock(kind, hash)
			FROM (SELECT DISTINCT kind, hashtext(name) AS hash FROM unnest($2::int[], $3::text[]) l (kind, name) ORDER BY kind, hash) l`, lockPermits, kinds, names)
	}
}

// most returns how many runs like this one its session may have.
func (a *admission) most() int {
	if a.run.Origin == engine.OriginParked {
		return a.permits.Parked
	}
	return a.permits.Session
}

// counted returns the SQL condition that an active run h counts against the permits.
func (a *admission) counted() string {
	if a.permits.Queue {
		return "(h.epoch <> 0 OR h.status = 'queued' AND NOT h.held)"
	}
	return "h.epoch <> 0"
}

// permitted returns the SQL condition that a permit is left. Its parameters are numbered from n
// on.
func (a *admission) permitted(n int) (condition string, args []any) {
	if a.permits == nil {
		return "", nil
	}
	count := "(SELECT count(*) FROM runs h WHERE h.finished IS NULL AND " + a.counted() + " AND h.owner = $3"
	if most := a.most(); most > 0 {
		condition += fmt.Sprintf(" AND $%d > %s AND h.session = $2 AND h.parked = $12)", n+len(args), count)
		args = append(args, most)
	}
	if a.permits.Owner > 0 {
		condition += fmt.Sprintf(" AND $%d > %s)", n+len(args), count)
		args = append(args, a.permits.Owner)
	}
	return condition, args
}

// read adds the queries of an admission to a batch.
func (a *admission) read(b *pgx.Batch) {
	a.readRun(b)

	if a.limited() {
		b.Queue(`SELECT coalesce(array_agg(id) FILTER (WHERE session = $2 AND parked = $3), '{}'), count(*) FROM runs h
			WHERE finished IS NULL AND `+a.counted()+` AND owner = $1`, a.owner, a.run.Session, a.run.Origin == engine.OriginParked).
			QueryRow(func(found pgx.Row) error { return found.Scan(&a.active, &a.owned) })
	}
}

// readRun adds the queries that do not depend on permits.
func (a *admission) readRun(b *pgx.Batch) {
	b.Queue("SELECT EXISTS (SELECT FROM runs WHERE id = $1), coalesce((SELECT id FROM runs WHERE session = $2 AND key = $3), '')", a.run.ID, a.run.Session, orNull(a.run.IdempotencyKey)).
		QueryRow(func(found pgx.Row) error { return found.Scan(&a.exists, &a.keyed) })

	if a.scheduled = a.run.Schedule == ""; !a.scheduled {
		b.Queue("SELECT FROM schedules WHERE id = $1 FOR KEY SHARE", a.run.Schedule).Query(func(rows pgx.Rows) error {
			a.scheduled = rows.Next()
			rows.Close()
			return rows.Err()
		})
	}
	if a.run.Parent != "" {
		// Children of a run with a limit are stored one after the other.
		lock := "FOR SHARE OF r"
		if a.permits != nil && a.permits.Children > 0 {
			lock = "FOR NO KEY UPDATE OF r"
		}
		b.Queue("SELECT "+columns+" FROM runs r WHERE r.id = $1 "+lock, a.run.Parent).QueryRow(func(found pgx.Row) error {
			r, err := scan(found)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			a.parent = &r
			return err
		})
		b.Queue("SELECT count(*) FROM runs WHERE parent = $1 AND finished IS NULL", a.run.Parent).QueryRow(func(found pgx.Row) error { return found.Scan(&a.children) })
	}
}

// refusal returns the error with which a run is refused, or nil if it is admitted.
func (a *admission) refusal() error {
	p := a.parent
	switch {
	case a.exists:
		return fmt.Errorf("%w: %s", engine.ErrExists, a.run.ID)
	case a.keyed != "":
		return &engine.ExistsError{ID: a.keyed}
	case !a.scheduled:
		return fmt.Errorf("%w: schedule %s", engine.ErrNotFound, a.run.Schedule)
	case a.run.Parent != "" && (p == nil || p.Session != a.run.Session || p.Run.Status.Terminal() || p.Run.Cancel != nil):
		return fmt.Errorf("%w: %s", engine.ErrParent, a.run.Parent)
	case a.permits == nil:
		return nil
	case a.run.Parent != "" && a.permits.Children > 0 && a.children >= a.permits.Children:
		return &engine.LimitError{Err: engine.ErrChildLimit, Max: a.permits.Children}
	}

	switch most := a.most(); {
	case most > 0 && len(a.active) >= most:
		slices.Sort(a.active)
		return &engine.LimitError{Err: a.session, Max: most, Active: a.active}
	case a.permits.Owner > 0 && a.owned >= a.permits.Owner:
		return &engine.LimitError{Err: engine.ErrOwnerLimit, Max: a.permits.Owner}
	}
	return nil
}

// queued is the condition that a run may be claimed, apart from permits. Few runs have an
// After: testing that first keeps the planner from joining all of them with all active runs.
const queued = `r.status = 'queued' AND r.epoch = 0 AND NOT r.held AND (r.after IS NULL OR NOT EXISTS (SELECT FROM runs a WHERE a.id = r.after AND a.finished IS NULL)) AND ` + fits

// fits is the condition that worker $5 offers a run, or that no worker with a lease has
// offered it since $6. $6 is NULL for a worker that takes every run.
const fits = `($6::bigint IS NULL OR EXISTS (SELECT FROM offers o WHERE o.epoch = $5 AND o.withdrawn IS NULL AND ` + offered + `) OR r.created <= $6 AND NOT EXISTS (
		SELECT FROM offers o JOIN workers w USING (epoch) WHERE coalesce(o.withdrawn, w.renewed + w.ttl) > $6 AND ` + offered + `))`

const offered = `o.tool = r.tool AND (r.version = '' OR o.version = r.version)`

// claimable finds the oldest runs of sessions and owners that have a permit left. It goes
// session by session, so that one long queue does not hide the others. $2 to $4 are the
// permits of a session, for parked calls, and of an owner; 0: no limit.
const claimable = `
	WITH RECURSIVE sessions AS (
		(SELECT session FROM runs r WHERE r.status = 'queued' AND r.epoch = 0 AND NOT r.held ORDER BY session LIMIT 1)
		UNION ALL
		SELECT (SELECT session FROM runs r WHERE r.status = 'queued' AND r.epoch = 0 AND NOT r.held AND r.session > sessions.session ORDER BY session LIMIT 1)
		FROM sessions WHERE sessions.session IS NOT NULL
	), candidates AS (
		SELECT c.seq, c.owner FROM sessions CROSS JOIN (VALUES (false, $2::int), (true, $3::int)) AS kinds (parked, most) CROSS JOIN LATERAL (
			SELECT r.owner FROM runs r WHERE r.status = 'queued' AND r.epoch = 0 AND NOT r.held AND r.session = sessions.session ORDER BY r.seq LIMIT 1
		) o CROSS JOIN LATERAL (
			SELECT r.seq, r.owner FROM runs r WHERE ` + queued + ` AND r.session = sessions.session AND r.parked = kinds.parked ORDER BY r.seq
			LIMIT least($1, CASE WHEN kinds.most = 0 THEN $1 ELSE greatest(0, kinds.most -
				(SELECT count(*) FROM runs h WHERE h.finished IS NULL AND h.epoch <> 0 AND h.owner = o.owner AND h.session = sessions.session AND h.parked = kinds.parked)) END)
		) c WHERE sessions.session IS NOT NULL
	), ranked AS (
		SELECT seq, owner, row_number() OVER (PARTITION BY owner ORDER BY seq) AS nth FROM candidates
	), owners AS MATERIALIZED (
		SELECT owner, CASE WHEN $4 = 0 THEN 0 ELSE (SELECT count(*) FROM runs h WHERE h.finished IS NULL AND h.epoch <> 0 AND h.owner = o.owner) END AS held
		FROM (SELECT DISTINCT owner FROM candidates) o
	)
	SELECT seq FROM ranked JOIN owners USING (owner) WHERE $4 = 0 OR nth + held <= $4
	ORDER BY seq LIMIT $1`

// Claim implements [engine.Worker].
func (w *worker) Claim(ctx context.Context, max int, permits engine.Permits) (claimed []engine.Run, err error) {
	if max <= 0 {
		return nil, nil
	}
	err = w.write(ctx, func(b *pgx.Batch) {
		b.Queue("SELECT pg_advisory_xact_lock($1, 0)", lockPermits)
		// A dead worker's claim holds no permit.
		b.Queue(`UPDATE runs SET epoch = 0 WHERE seq IN (
			SELECT r.seq FROM runs r WHERE r.status = 'queued' AND r.finished IS NULL AND r.epoch <> 0 AND NOT `+live("r.epoch", 1)+`
			ORDER BY r.seq FOR UPDATE OF r SKIP LOCKED)`, w.db.now())
	}, func(t *tx, now time.Time) error {
		found, err := t.runs("UPDATE runs r SET epoch = $5 WHERE r.status = 'queued' AND r.epoch = 0 AND r.seq IN ("+claimable+") RETURNING "+columns, max, permits.Session, permits.Parked, permits.Owner, w.epoch, w.impatient(now))
		sortRows(found)
		claimed = runsOf(found)
		return err
	})

	if err != nil {
		w.unclaims("", true)
		return nil, err
	}
	for _, run := range claimed {
		w.claims(run.ID)
	}
	return claimed, nil
}
