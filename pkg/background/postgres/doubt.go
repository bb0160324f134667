package postgres

import (
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// Claims are the queued runs that a worker knows it has claimed. If an answer of the server
// was lost, the worker may have claimed others, which would wait forever: its heartbeats give
// those back. They do the same after a new connection: after a failover that lost writes, a run
// that was started may be claimed again.
type claims struct {
	known       map[string]bool // claimed runs, by id; includes runs that are being submitted
	doubt       bool            // whether an answer was lost
	connections int64           // number of connections made so far; a new one may be to another server
	until       int64           // highest seq of the unknown runs to give back; 0: none are given back
}

// claims records that the worker claims runs, or is about to.
func (w *worker) claims(ids ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		w.claimed.known[id] = true
	}
}

// unclaims records that a run is no longer claimed. If doubt is set, it may still be.
func (w *worker) unclaims(id string, doubt bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.claimed.known, id)
	w.claimed.doubt = w.claimed.doubt || doubt
}

// giveBack makes a heartbeat give back runs that are claimed but unknown. That takes two
// heartbeats, so that runs that are just being submitted are left alone: the first one reads the
// highest seq, and the second one gives back the runs up to it that are still unknown. Call
// settled when the heartbeat has ended.
func (w *worker) giveBack(b *pgx.Batch, freed *[]row) (settled func(err error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.claimed
	if made := w.db.connections.Load(); made != before.connections {
		before.doubt, w.claimed.connections = true, made
	}
	var until int64
	w.claimed.doubt, w.claimed.until = false, 0

	*freed = nil
	if before.until > 0 {
		known := slices.AppendSeq([]string{}, maps.Keys(before.known)) // never nil, which would be NULL
		b.Queue("UPDATE runs r SET epoch = 0 WHERE r.epoch = $1 AND r.finished IS NULL AND r.status = 'queued' AND r.seq <= $2 AND r.id <> ALL($3) RETURNING "+columns,
			w.epoch, before.until, known).Query(func(rows pgx.Rows) (err error) {
			*freed, err = scanRuns(rows)
			return err
		})
	}
	if before.doubt {
		b.Queue("SELECT coalesce(max(seq), 0) FROM runs").QueryRow(func(found pgx.Row) error { return found.Scan(&until) })
	}

	return func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.claimed.until = until
		if err != nil {
			w.claimed.doubt, w.claimed.until = w.claimed.doubt || before.doubt, before.until
		}
	}
}

// publishFreed publishes that runs can be claimed again.
func (t *tx) publishFreed(freed []row) {
	sortRows(freed)
	for _, r := range freed {
		t.publish(engine.EventQueued, r.Run)
	}
}
