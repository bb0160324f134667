package postgres

import (
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// Claims are the queued runs that a worker has claimed, as far as it knows. When an answer
// of the server is lost, it may have claimed others, which would wait for ever: it gives
// those back with its heartbeats. So it does when there is a new connection: after a failover
// that has lost writes, a run that was started may be claimed again.
type claims struct {
	known       map[string]bool // by id; also while they are being submitted
	doubt       bool            // an answer was lost
	connections int64           // that had been made; another one may be to another server
	until       int64           // runs stored until then are given back that are not known; 0: none
}

// claims notes that the worker claims runs, or is about to.
func (w *worker) claims(ids ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		w.claimed.known[id] = true
	}
}

// unclaims notes that a run is not claimed any more; doubt, that it may be.
func (w *worker) unclaims(id string, doubt bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.claimed.known, id)
	w.claimed.doubt = w.claimed.doubt || doubt
}

// giveBack has a heartbeat give back what is claimed and not known. It needs two of them,
// so that it leaves alone what is being submitted meanwhile: one reads what there is, and
// the next compares that with what was known after it. Call settled with the end of the
// heartbeat.
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

// publishFreed tells that runs can be claimed again.
func (t *tx) publishFreed(freed []row) {
	sortRows(freed)
	for _, r := range freed {
		t.publish(engine.EventQueued, r.Run)
	}
}
