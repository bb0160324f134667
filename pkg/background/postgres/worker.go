package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A worker implements [engine.Worker]. Its lease is a row in the table workers. By this
// process's clock the lease has ended when the last renewal was sent TTL ago, whatever the
// server says: a process that was paused for too long does nothing more.
type worker struct {
	db       *database
	epoch    int64
	ttl      time.Duration
	patience time.Duration

	mu      sync.Mutex
	renewed time.Time              // when the last renewal was sent
	left    bool                   // whether it has left
	beats   map[string]engine.Beat // last stored beats
	claimed claims
	picky   bool // whether it takes only certain runs
}

var _ engine.Worker = (*worker)(nil)

// Join implements [engine.Engine].
func (e *Engine) Join(ctx context.Context, info engine.WorkerInfo) (engine.Worker, error) {
	var random [8]byte
	_, _ = rand.Read(random[:])
	w := &worker{
		db: e.database, ttl: cmp.Or(info.TTL, engine.DefaultTTL), patience: info.Patience, renewed: time.Now(), beats: map[string]engine.Beat{}, claimed: claims{known: map[string]bool{}},
		epoch: max(1, int64(binary.LittleEndian.Uint64(random[:])>>1)),
	}
	err := e.write(ctx, func(b *pgx.Batch) {
		b.Queue("INSERT INTO workers SELECT $2, now, now, $3, $4, false, 0, 'null' FROM (SELECT "+serverNow(1)+" AS now) n", e.now(), w.epoch, int64(w.ttl), int64(w.patience))
	}, func(t *tx) error {
		w.offer(t, info.Offer, time.Time{})
		return nil
	})
	if err != nil {
		return nil, err
	}
	w.picky, w.claimed.connections = info.Offer.Tools != nil, e.connections.Load()

	e.mu.Lock()
	defer e.mu.Unlock()
	e.quota, e.joined = info.Quota, true
	return w, nil
}

// live returns the SQL condition that the worker of an epoch has a lease.
func live(epoch string, now int) string {
	return "EXISTS (SELECT FROM workers w WHERE w.epoch = " + epoch + " AND w.renewed + w.ttl > " + serverNow(now) + ")"
}

// over returns the error of a lease that has ended.
func (w *worker) over() error {
	return fmt.Errorf("%w: the worker's lease has ended", engine.ErrFenced)
}

// stale reports whether the worker's lease has ended by this process's clock.
func (w *worker) stale() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.left || time.Since(w.renewed) >= w.ttl
}

// check returns an error if the lease has ended by this process's clock. It adds to a
// batch a query for the server's view of the lease, and for the time.
func (w *worker) check(b *pgx.Batch, ended *bool, now *time.Time) {
	gone := w.stale()
	b.Queue("SELECT "+live("$2", 1)+", "+serverNow(1), w.db.now(), w.epoch).QueryRow(func(found pgx.Row) error {
		var lasts bool
		var at int64
		err := found.Scan(&lasts, &at)
		*ended, *now = gone || !lasts, instant(&at)
		return err
	})
}

// write is like [database.write], but fails once the lease has ended.
func (w *worker) write(ctx context.Context, first func(b *pgx.Batch), do func(t *tx, now time.Time) error) error {
	var ended bool
	var now time.Time
	return w.db.write(ctx, func(b *pgx.Batch) {
		w.check(b, &ended, &now)
		if first != nil {
			first(b)
		}
	}, func(t *tx) error {
		if ended {
			return w.over()
		}
		return do(t, now)
	})
}

// onRun is like [database.onRun], for a run that w has and that has not ended. m must have no
// parameters.
func (w *worker) onRun(ctx context.Context, id string, m more, do func(t *tx, r row, now time.Time) error) error {
	m, own := w.own(id, m, do)
	return w.db.onRun(ctx, id, m, own)
}

// onRunShared is like onRun, but in a transaction with other writes: see [joint].
func (w *worker) onRunShared(ctx context.Context, id string, m more, do func(t *tx, r row, now time.Time) error) error {
	m, own := w.own(id, m, do)
	return w.db.onRunShared(ctx, id, m, own)
}

// own makes do require that w has the run and that it has not ended.
func (w *worker) own(id string, m more, do func(t *tx, r row, now time.Time) error) (more, func(t *tx, r row) error) {
	var lasts bool
	var now int64
	m = more{", " + live("$3", 2) + ", " + serverNow(2) + m.columns, []any{w.db.now(), w.epoch}, append([]any{&lasts, &now}, m.to...)}
	return m, func(t *tx, r row) error {
		switch {
		case !lasts || w.stale():
			return w.over()
		case r.Run.Status.Terminal() || r.epoch != w.epoch:
			return fmt.Errorf("%w: %s is %s", engine.ErrFenced, id, r.Run.Status)
		}
		return do(t, r, instant(&now))
	}
}

// Start implements [engine.Worker].
func (w *worker) Start(ctx context.Context, id string) (engine.Lease, error) {
	l := &lease{worker: w}
	m := more{columns: ", args, checkpoint, state", to: []any{(*[]byte)(&l.args), &l.checkpoint, &l.state}}
	err := w.onRunShared(ctx, id, m, func(t *tx, r row, now time.Time) error {
		if r.Run.Status != engine.StatusQueued {
			return fmt.Errorf("%w: %s is %s", engine.ErrFenced, id, r.Run.Status)
		}

		before := r
		r.Run = r.Begin(now)
		r.turn++
		l.run, l.seq, l.turn = r.Run, r.seq, r.turn
		switch {
		case l.state != nil:
			l.end = r.StateLog
			t.cutLog(r.seq, r.StateLog)
		case before.Attempt > 0:
			t.queue("DELETE FROM logs WHERE run = $1", r.seq)
		}

		t.publish(engine.EventStarted, r.Run)
		return t.update(before, r)
	})

	if err == nil || errors.Is(err, engine.ErrFenced) {
		w.unclaims(id, false)
	}
	if err != nil {
		return nil, err
	}
	l.run.Args = l.args
	return l, nil
}

var errAgain = errors.New("it is tried again")

// Renew implements [engine.Worker].
func (w *worker) Renew(ctx context.Context, held map[string]engine.Beat) (news engine.Renewal, err error) {
	sent := time.Now()
	w.mu.Lock()
	left := w.left
	fresh := map[string]engine.Beat{}
	for id, b := range held {
		if known, ok := w.beats[id]; !ok || !known.Equal(b) {
			fresh[id] = b
		}
	}
	w.mu.Unlock()
	if left {
		return news, w.over()
	}

	var h heartbeat
	ctx, answer := within(ctx, w.ttl/3) // leaves time for another attempt, at another server
	err = w.db.write(ctx, func(b *pgx.Batch) {
		h.settle(errAgain)
		h = heartbeat{worker: w}
		h.queue(b, slices.AppendSeq(make([]string, 0, len(held)), maps.Keys(held))) // never nil, which would be NULL
	}, func(t *tx) (err error) {
		if !h.lasts {
			return w.over()
		}
		t.publishFreed(h.freed)
		h.stored, err = w.storeBeats(t, fresh)
		return err
	})
	err = w.db.fail(answer(err))
	h.settle(err)
	if err != nil {
		return engine.Renewal{}, err
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	w.renewed = sent
	for id := range w.beats {
		if _, ok := held[id]; !ok {
			delete(w.beats, id)
		}
	}
	for _, id := range h.stored {
		w.beats[id] = held[id]
	}
	return h.news, nil
}

// A heartbeat is the data that a renewal of the lease reads and writes.
type heartbeat struct {
	worker  *worker
	lasts   bool
	news    engine.Renewal
	freed   []row    // runs whose claims are given back
	stored  []string // ids of the runs whose beat was stored
	settled func(err error)
}

// queue adds statements that renew the worker's lease and read what is new. held
// are the ids of the runs that it works on.
func (h *heartbeat) queue(b *pgx.Batch, held []string) {
	w := h.worker
	b.Queue("UPDATE workers w SET renewed = "+serverNow(1)+" WHERE w.epoch = $2 AND w.renewed + w.ttl > "+serverNow(1)+" RETURNING true", w.db.now(), w.epoch).
		Query(func(rows pgx.Rows) error {
			h.lasts = rows.Next()
			rows.Close()
			return rows.Err()
		})

	// NOT IN with a query is hashed; <> ALL would compare each with each.
	b.Queue("SELECT id, stop, id NOT IN (SELECT unnest($2::text[])) FROM runs WHERE epoch = $1 AND finished IS NULL AND status = 'running' AND (stop OR id NOT IN (SELECT unnest($2::text[]))) ORDER BY seq", w.epoch, held).
		Query(func(rows pgx.Rows) error {
			var id string
			var stop, stray bool
			_, err := pgx.ForEachRow(rows, []any{&id, &stop, &stray}, func() error {
				if stop {
					h.news.Stops = append(h.news.Stops, id)
				}
				if stray {
					h.news.Strays = append(h.news.Strays, id)
				}
				return nil
			})
			return err
		})

	h.settled = w.giveBack(b, &h.freed)
	b.Queue(`SELECT EXISTS (SELECT FROM runs WHERE status = 'queued' AND epoch = 0 AND NOT held) OR d.claims, d.running,
		EXISTS (SELECT FROM runs r WHERE r.notice = 1 AND NOT `+live("r.notifier", 1)+`)
		FROM (SELECT coalesce(bool_or(EXISTS (SELECT FROM runs WHERE epoch = w.epoch AND status = 'queued' AND finished IS NULL)), false) AS claims,
			coalesce(bool_or(EXISTS (SELECT FROM runs WHERE epoch = w.epoch AND status = 'running' AND finished IS NULL)), false) AS running
			FROM workers w WHERE w.renewed + w.ttl <= `+serverNow(1)+`) d`, w.db.now()).
		QueryRow(func(found pgx.Row) error { return found.Scan(&h.news.Queued, &h.news.Orphans, &h.news.Notices) })
}

// settle records how the renewal ended, if it began.
func (h *heartbeat) settle(err error) {
	if h.settled != nil {
		h.settled(err)
	}
}

// storeBeats stores the beats of runs, and returns the ids of those stored.
func (w *worker) storeBeats(t *tx, beats map[string]engine.Beat) (stored []string, err error) {
	if len(beats) == 0 {
		return nil, nil
	}
	var ids []string
	for id := range beats {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var texts []string
	for _, id := range ids {
		text, err := json.Marshal(beats[id])
		if err != nil {
			return nil, err
		}
		texts = append(texts, string(text))
	}

	changed, err := t.runs(`UPDATE runs r SET beat = b.beat::json FROM
		(SELECT r.seq, v.beat FROM runs r JOIN unnest($1::text[], $2::text[]) AS v (id, beat) ON v.id = r.id
			WHERE r.epoch = $3 AND r.status = 'running' AND r.beat::text <> v.beat ORDER BY r.id COLLATE "C" FOR NO KEY UPDATE OF r) b
		WHERE r.seq = b.seq RETURNING `+columns, ids, texts, w.epoch)
	for _, r := range changed {
		t.publish(engine.EventBeat, r.Run)
	}
	return ids, err
}

// Orphans implements [engine.Worker]. This worker takes over the runs of a dead worker only
// after it has held its own lease without a gap for the dead worker's TTL, and not while the
// dead worker's lease is being renewed.
func (w *worker) Orphans(ctx context.Context, max int) (runs []engine.Run, err error) {
	err = w.write(ctx, nil, func(t *tx, _ time.Time) error {
		taken, err := t.runs(`WITH dead AS (
				SELECT d.epoch, d.renewed FROM workers d, workers mine WHERE mine.epoch = $2 AND d.renewed + d.ttl <= `+serverNow(1)+` AND mine.since + d.ttl <= `+serverNow(1)+` FOR SHARE OF d SKIP LOCKED
			), found AS (
				SELECT r.seq, dead.renewed FROM runs r JOIN dead ON dead.epoch = r.epoch WHERE r.finished IS NULL AND r.status = 'running' ORDER BY r.seq LIMIT $3 FOR UPDATE OF r SKIP LOCKED
			) UPDATE runs r SET epoch = $2, heartbeat = greatest(r.heartbeat, found.renewed) FROM found WHERE r.seq = found.seq RETURNING `+columns, t.db.now(), w.epoch, max)
		sortRows(taken)
		runs = runsOf(taken)
		return err
	})
	return runs, err
}

func sortRows(rows []row) {
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.seq, b.seq) })
}

// Requeue implements [engine.Worker].
func (w *worker) Requeue(ctx context.Context, id string, attempt int) (err error) {
	defer func() { w.unclaims(id, err != nil) }()
	return w.onRun(ctx, id, more{}, func(t *tx, r row, _ time.Time) error {
		if r.Attempt != attempt {
			return fmt.Errorf("%w: %s, attempt %d", engine.ErrFenced, id, attempt)
		}
		before := r
		r.Run.Status, r.epoch = engine.StatusQueued, 0
		t.publish(engine.EventQueued, r.Run)
		return t.update(before, r)
	})
}

// Abandon implements [engine.Worker].
func (w *worker) Abandon(ctx context.Context, id string, attempt int, status engine.Status, b engine.Beat, end engine.End) (run engine.Run, err error) {
	defer func() { w.unclaims(id, err != nil) }()
	var kept keptParts
	err = w.onRun(ctx, id, kept.more(), func(t *tx, r row, _ time.Time) error {
		if r.Attempt != attempt {
			return fmt.Errorf("%w: %s, attempt %d", engine.ErrFenced, id, attempt)
		}
		run, err = t.end(r, r, kept, status, b, end)
		return err
	})
	return run, err
}

// Notices implements [engine.Worker].
func (w *worker) Notices(ctx context.Context, max int) (runs []engine.Run, err error) {
	err = w.write(ctx, nil, func(t *tx, _ time.Time) error {
		taken, err := t.runs(`UPDATE runs r SET notifier = $2 WHERE r.seq IN (
			SELECT r.seq FROM runs r WHERE r.notice = 1 AND NOT `+live("r.notifier", 1)+` ORDER BY r.finished, r.seq LIMIT $3 FOR UPDATE SKIP LOCKED
			) RETURNING `+columns, t.db.now(), w.epoch, max)
		slices.SortFunc(taken, func(a, b row) int {
			return cmp.Or(a.FinishedAt.Compare(b.FinishedAt), cmp.Compare(a.seq, b.seq))
		})
		runs = runsOf(taken)
		return err
	})
	return runs, err
}

// Leave implements [engine.Worker].
func (w *worker) Leave(ctx context.Context) error {
	w.mu.Lock()
	gone := w.left
	w.left = true
	w.mu.Unlock()
	if gone {
		return nil
	}

	return w.db.write(ctx, nil, func(t *tx) error {
		freed, err := t.runs(`UPDATE runs r SET epoch = 0 WHERE r.seq IN (
			SELECT seq FROM runs WHERE epoch = $1 AND status = 'queued' AND finished IS NULL ORDER BY seq FOR UPDATE) RETURNING `+columns, w.epoch)
		t.publishFreed(freed)
		t.queue("UPDATE workers SET ttl = 0 WHERE epoch = $1", w.epoch)
		return err
	})
}
