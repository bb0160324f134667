package postgres

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// ID implements [engine.Worker].
func (w *worker) ID() string { return strconv.FormatInt(w.epoch, 36) }

// Offer implements [engine.Worker].
func (w *worker) Offer(ctx context.Context, o engine.Offer) error {
	err := w.write(ctx, nil, func(t *tx, now time.Time) error {
		w.offer(t, o, now)
		return nil
	})
	if err != nil {
		return err
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	w.picky = o.Tools != nil
	return nil
}

// offer stores the worker's new offer.
func (w *worker) offer(t *tx, o engine.Offer, now time.Time) {
	tools, versions := make([]string, 0, len(o.Tools)), make([]string, 0, len(o.Tools))
	for tool, version := range o.Tools {
		tools, versions = append(tools, clean(tool)), append(versions, clean(version))
	}
	about := o.About
	if about == nil {
		about = json.RawMessage("null")
	}

	t.queue("UPDATE workers SET picky = $2, places = $3, about = $4 WHERE epoch = $1", w.epoch, o.Tools != nil, o.Places, about)
	t.queue(`UPDATE offers SET withdrawn = $2 WHERE epoch = $1 AND withdrawn IS NULL
		AND (tool, version) NOT IN (SELECT * FROM unnest($3::text[], $4::text[]))`, w.epoch, now.UnixNano(), tools, versions)
	t.queue(`INSERT INTO offers SELECT $1, tool, version FROM unnest($2::text[], $3::text[]) AS new (tool, version)
		ON CONFLICT (epoch, tool, version) DO UPDATE SET withdrawn = NULL`, w.epoch, tools, versions)
}

// impatient returns a time: the worker claims a run that it does not offer only if nobody has
// offered the run since then. The time is nil if the worker takes every run.
func (w *worker) impatient(now time.Time) *int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.picky {
		return nil
	}
	return nanos(now.Add(-w.patience))
}

// Workers implements [engine.Engine].
func (e *Engine) Workers(ctx context.Context) ([]engine.WorkerState, error) {
	var states []engine.WorkerState
	byEpoch := map[int64]int{}
	var b pgx.Batch
	b.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

	b.Queue(`SELECT w.epoch, w.since, w.renewed, w.ttl, w.renewed + w.ttl > `+serverNow(1)+`, w.picky, w.places, w.about, r.claimed, r.running FROM workers w CROSS JOIN LATERAL (
			SELECT count(*) FILTER (WHERE status = 'queued') AS claimed, count(*) FILTER (WHERE status = 'running') AS running FROM runs WHERE epoch = w.epoch AND finished IS NULL
		) r WHERE w.ttl > 0 ORDER BY w.since, w.epoch`, e.now()).Query(func(rows pgx.Rows) error {
		var epoch, since, renewed int64
		var picky bool
		var places int
		var about []byte
		var s engine.WorkerState
		_, err := pgx.ForEachRow(rows, []any{&epoch, &since, &renewed, (*int64)(&s.TTL), &s.Live, &picky, &places, &about, &s.Claimed, &s.Running}, func() error {
			s.ID, s.Since, s.RenewedAt = strconv.FormatInt(epoch, 36), instant(&since), instant(&renewed)
			s.Offer = engine.Offer{Places: places}
			if picky {
				s.Offer.Tools = map[string]string{}
			}
			if string(about) != "null" {
				s.Offer.About = append(json.RawMessage(nil), about...)
			}
			byEpoch[epoch] = len(states)
			states = append(states, s)
			return nil
		})
		return err
	})

	b.Queue("SELECT epoch, tool, version FROM offers WHERE withdrawn IS NULL").Query(func(rows pgx.Rows) error {
		var epoch int64
		var tool, version string
		_, err := pgx.ForEachRow(rows, []any{&epoch, &tool, &version}, func() error {
			if at, ok := byEpoch[epoch]; ok && states[at].Offer.Tools != nil {
				states[at].Offer.Tools[tool] = version
			}
			return nil
		})
		return err
	})

	b.Queue("COMMIT")
	return states, e.fail(e.pool.SendBatch(ctx, &b).Close())
}
