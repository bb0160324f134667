package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

const (
	selectActive = `SELECT ` + runColumns + `, ifnull((SELECT length(data) FROM checkpoints k WHERE k.seq = runs.seq), 0)
		FROM runs INDEXED BY runs_active WHERE finished IS NULL`
	selectLogged = `SELECT sum(logged) FROM runs INDEXED BY runs_logged WHERE logged > 0`
)

// restoreRuns reads the runs that have not ended, and adds up the size of all logs: with an
// index for the ended runs, and from the folders of the others. A damaged record counts as
// ended, so that it can be evicted.
func (e *Engine) restoreRuns(ctx context.Context) error {
	err := e.db.read(ctx, func(c *conn) error {
		ended, err := c.number(selectLogged)
		e.logs.used.Add(ended)
		return err
	})
	if err != nil {
		return err
	}

	runs, damaged, err := e.readActive(ctx)
	if err != nil {
		return err
	}

	for _, a := range runs {
		e.active.add(a)
	}
	if err := e.restoreWaits(ctx); err != nil {
		return err
	}
	for _, seq := range damaged {
		err := e.db.write(ctx, func(w *conn) error {
			return w.run(`UPDATE runs SET finished = ?, notice = 0 WHERE seq = ?`, time.Now().UnixNano(), seq)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Get implements [engine.Engine].
func (e *Engine) Get(ctx context.Context, id string) (engine.Run, error) {
	if run, ok := e.active.light(id); ok {
		return run, nil
	}
	r, err := runTable.get(ctx, e.db, id)
	return r.Run, err
}

// Payload implements [engine.Engine].
func (e *Engine) Payload(ctx context.Context, id string, part engine.Part) (data json.RawMessage, err error) {
	err = e.db.read(ctx, func(c *conn) error {
		seq, err := c.number(`SELECT seq FROM runs WHERE id = ?`, id)
		if err == nil && seq == 0 {
			err = fmt.Errorf("%w: %s", engine.ErrNotFound, id)
		}
		if table := payloads[part]; err == nil && table != "" {
			data, err = blob(c, table, seq)
		}
		return err
	})
	return data, err
}

// List implements [engine.Engine]. It reads the runs that have not ended from memory, and then
// the others from the database: a run that ends in between is in both.
func (e *Engine) List(ctx context.Context, q engine.Query) (runs []engine.Run, err error) {
	if err := e.active.err(); err != nil {
		return nil, err
	}
	below := int64(math.MaxInt64)
	if q.Before != "" {
		below, err = e.seqOf(ctx, q.Before, q.Session)
		if err != nil || below == 0 {
			return nil, err
		}
	}

	found := e.active.list(q, below)
	if !q.Active && (len(q.Statuses) == 0 || slices.ContainsFunc(q.Statuses, engine.Status.Terminal)) {
		above := int64(0)
		if q.Limit > 0 && len(found) == q.Limit {
			above = found[q.Limit-1].seq
		}
		sql, args := selectEnded(q, above, below)
		ended, err := readAll(ctx, e.db, decode, sql, args...)
		if err != nil {
			return nil, err
		}
		found = merge(found, ended)
	}
	for _, r := range found {
		if q.Limit > 0 && len(runs) == q.Limit {
			break
		}
		runs = append(runs, r.Run)
	}
	return runs, nil
}

// seqOf returns the seq of a run, or 0 if there is none. If session is not empty, the run must
// belong to it.
func (e *Engine) seqOf(ctx context.Context, id, session string) (seq int64, err error) {
	err = e.db.read(ctx, func(c *conn) error {
		seq, err = c.number(`SELECT seq FROM runs WHERE id = ? AND ? IN ('', session)`, id, session)
		return err
	})
	return seq, err
}

// merge returns the runs of two lists, newest first. If a run is in both, it takes the row from
// ended.
func merge(active, ended []row) []row {
	all := append(ended, active...)
	slices.SortStableFunc(all, func(a, b row) int { return cmp.Compare(b.seq, a.seq) })
	return slices.CompactFunc(all, func(a, b row) bool { return a.seq == b.seq })
}

// selectEnded returns the statement for the ended runs that q selects and whose seq is between
// above and below, newest first. It names the index to begin with, the most selective one:
// SQLite does not know how many runs match, and would rather scan all runs than sort a few. A
// filter begins with the narrow rows of facets instead.
func selectEnded(q engine.Query, above, below int64) (sql string, args []driver.Value) {
	index, where := "", " AND finished IS NOT NULL"
	for _, c := range []struct {
		on               bool
		index, condition string
		arg              driver.Value
	}{
		{q.IdempotencyKey != "", " INDEXED BY runs_key", "idempotency_key = ?", q.IdempotencyKey},
		{q.Schedule != "", " INDEXED BY runs_schedule", "schedule = ?", q.Schedule},
		{q.Parent != "", " INDEXED BY runs_parent", "parent = ?", q.Parent},
		{q.Session != "", " INDEXED BY runs_ended", "session = ?", q.Session},
		{above > 0, "", "seq > ?", above},
		{below < math.MaxInt64, "", "seq < ?", below},
	} {
		if c.on {
			index = cmp.Or(index, c.index)
			where += " AND " + c.condition
			args = append(args, c.arg)
		}
	}

	from, order := " FROM runs"+index, "seq"
	if !q.Filter.IsZero() {
		conditions, more := facetConditions(q.Filter, q.Session)
		from, order = " FROM facets CROSS JOIN runs ON runs.seq = facets.run", "facets.run"
		where, args = where+conditions, append(args, more...)
		where = strings.ReplaceAll(where, " AND seq ", " AND facets.run ")
	}
	sql = "SELECT " + runColumns + from + " WHERE 1" + where + " ORDER BY " + order + " DESC"
	if q.Limit > 0 {
		sql += " LIMIT ?"
		args = append(args, int64(q.Limit))
	}

	return sql, args
}

// The index has the notices of a session in this order, so that a query for a page of them reads
// no others.
const (
	noticesOf     = ` FROM runs INDEXED BY runs_notice WHERE notice = 1 AND session = ? AND finished >= ?`
	selectNotices = `SELECT ` + runColumns + noticesOf + ` ORDER BY finished, seq LIMIT ?`
	countNotices  = `SELECT count(*)` + noticesOf
)

// Pending implements [engine.Engine].
func (e *Engine) Pending(ctx context.Context, session string, since time.Time, max int) (runs []engine.Run, total int, err error) {
	limit := int64(max)
	if max <= 0 {
		limit = -1 // no limit
	}
	from := nanos(since)
	runs, err = readAll(ctx, e.db, func(found []driver.Value) (engine.Run, error) {
		r, err := decode(found)
		return r.Run, err
	}, selectNotices, session, from, limit)
	if err != nil || max <= 0 || len(runs) < max {
		return runs, len(runs), err
	}

	err = e.db.read(ctx, func(c *conn) error {
		n, err := c.number(countNotices, session, from)
		total = int(n)
		return err
	})
	return runs, total, err
}

// Acknowledge implements [engine.Engine].
func (e *Engine) Acknowledge(ctx context.Context, session string, ids []string) error {
	return e.db.write(ctx, func(w *conn) error {
		for _, id := range ids {
			r, err := runTable.load(w, id)
			if errors.Is(err, engine.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if r.Session != session || r.Notice != engine.NoticePending {
				continue
			}
			if err := r.acknowledge(w); err != nil {
				return err
			}
			w.after = append(w.after, func() { e.feed.Publish(engine.RunEvent(engine.EventSeen, r.Run)) })
		}
		return nil
	})
}

// errEnded: the run is not active.
var errEnded = errors.New("run not active")

// Cancel implements [engine.Engine].
func (e *Engine) Cancel(ctx context.Context, id string, c engine.Cancellation, end engine.End) (run engine.Run, err error) {
	check := func(a *active) error {
		if a == nil || c.Held && !a.run.Undecided() {
			return errEnded
		}
		return nil
	}
	err = e.active.change(id, check, func(a *active, r row) error {
		r.Run = r.Run.Canceled(c)
		if r.Status == engine.StatusQueued || r.Status == engine.StatusWaiting {
			run, err = e.end(ctx, a, r.Finish(engine.StatusCanceled, r.Beat, end))
			return err
		}
		run = r.Run
		return e.update(ctx, r, engine.EventStopping, func() { a.run.Cancel = r.Cancel })
	})
	switch {
	case errors.Is(err, errEnded) && c.Held:
		return engine.Run{}, e.decided(ctx, id)
	case errors.Is(err, errEnded):
		return e.Get(ctx, id)
	}
	return run, err
}

// Release implements [engine.Engine].
func (e *Engine) Release(ctx context.Context, id string) (run engine.Run, err error) {
	held := func(a *active) error {
		if a == nil || !a.run.Undecided() {
			return errEnded
		}
		return nil
	}
	err = e.active.change(id, held, func(a *active, r row) error {
		r.Held = ""
		run = r.Run
		return e.update(ctx, r, engine.EventQueued, func() { a.run.Held = "" })
	})
	if errors.Is(err, errEnded) {
		return engine.Run{}, e.decided(ctx, id)
	}
	return run, err
}

// decided returns why a run can be neither released nor refused: it is not held, or
// unknown.
func (e *Engine) decided(ctx context.Context, id string) error {
	if _, err := e.Get(ctx, id); err != nil {
		return err
	}
	return fmt.Errorf("%w: run %s", engine.ErrConflict, id)
}

// end stores the end of a run that is being changed: its log, its artifacts and its
// record, in this order. run is the run as it will be, except for ArtifactError.
func (e *Engine) end(ctx context.Context, a *active, run engine.Run) (engine.Run, error) {
	log, _, err := e.liveLog(run.ID)
	if err != nil {
		log = e.logs.create(run)
	}
	before := log.size()
	x, sealing := log.seal()
	run.OutputBytes = max(run.OutputBytes, x.End)
	file, writing := writeEnvelope(log.dir, run)
	err = errors.Join(err, sealing, writing, syncDir(log.dir), syncDir(e.logs.dir))
	if err != nil {
		if !a.noted { // the end may be stored again and again
			e.log.Error("artifacts of a background run not written", "task_id", run.ID, "error", err)
			a.noted = true
		}
		run.ArtifactError = cmp.Or(run.ArtifactError, "The output or result file could not be written")
	}

	r := row{seq: a.seq, logged: before, stored: stored{Run: run, Log: &x}}
	if x.Whole {
		r.logged = x.size()
	}
	more := r.logged - before
	if run.Attempt > 1 {
		earlier := run
		earlier.Attempt--
		r.logged += e.logs.size(earlier)
	}
	r.size = a.size - a.saved - a.state + int64(len(run.Result)+len(run.Content)) + file
	if run.Calls != nil {
		r.size += int64(len(run.Calls)) - e.active.called(a)
	}
	record, err := r.encode()
	if err != nil {
		return engine.Run{}, err
	}
	run = run.Light()
	err = e.db.write(ctx, func(w *conn) error {
		w.after = append(w.after, func() { e.ended(a, run) })
		return r.finish(w, record, a.size)
	})
	if err != nil {
		return engine.Run{}, err
	}
	if x.Whole {
		removeLog(log.dir, engine.OutputLog)
		e.logs.used.Add(more)
	}

	return run, nil
}

// writeEnvelope writes the result.json of a run, and returns its intended
// length.
func writeEnvelope(dir string, run engine.Run) (int64, error) {
	data, err := run.ResultFile()
	if err != nil {
		return 0, err
	}
	path := filepath.Join(dir, engine.ResultJSON)
	if err := writeFile(path+".new", bytes.NewReader(data)); err != nil {
		return int64(len(data)), err
	}
	return int64(len(data)), os.Rename(path+".new", path)
}

// ended publishes a stored end.
func (e *Engine) ended(a *active, run engine.Run) {
	g := e.active
	g.mu.Lock()
	woken := g.drop(a)
	a.run = run
	if run.Notice == engine.NoticePending {
		g.notices = append(g.notices, run.ID)
	}
	g.mu.Unlock()
	e.feed.Publish(engine.RunEvent(engine.EventEnded, run))
	e.woke(woken)
}

// Tail implements [engine.Engine].
func (e *Engine) Tail(ctx context.Context, id string, offset int64, max int) (chunk engine.Chunk, err error) {
	log, attempt, err := e.liveLog(id)
	if err != nil {
		return chunk, err
	}
	if log != nil {
		chunk, err = log.read(offset, max)
		chunk.Attempt = attempt
		return chunk, err
	}

	r, err := runTable.get(ctx, e.db, id)
	if err != nil {
		return chunk, err
	}
	if r.Log == nil { // it was stored a moment ago
		return e.Tail(ctx, id, offset, max)
	}
	if chunk, err = e.logs.tail(r, offset, max); err != nil {
		return chunk, fmt.Errorf("reading the log of %s: %w", id, err)
	}
	chunk.Attempt = r.Attempt
	return chunk, nil
}

// liveLog returns the log of a run that has not ended, and its attempt; nil if
// the run is not active. The log of an earlier process ends with its last append.
func (e *Engine) liveLog(id string) (log *logFile, attempt int, err error) {
	e.active.mu.Lock()
	defer e.active.mu.Unlock()

	a := e.active.runs[id]
	if a == nil {
		return nil, 0, nil
	}
	if a.log == nil {
		if a.log, err = e.logs.find(a.run); err != nil {
			a.log = nil
			return nil, 0, fmt.Errorf("reading the log of %s: %w", id, err)
		}
	}
	return a.log, a.run.Attempt, nil
}

// Open implements [engine.Engine]. [engine.ResultJSON] comes from the
// record, so it exists even if the file does not.
func (e *Engine) Open(ctx context.Context, id, name string) (engine.Artifact, error) {
	r, err := runTable.get(ctx, e.db, id)
	if err != nil {
		return nil, err
	}
	if r.Log != nil {
		switch name {
		case engine.OutputLog:
			return e.logs.open(r), nil
		case engine.ResultJSON:
			if r.Result, err = e.Payload(ctx, id, engine.PartResult); err != nil {
				return nil, err
			}
			if r.Content, err = e.Payload(ctx, id, engine.PartContent); err != nil {
				return nil, err
			}
			data, err := r.ResultFile()
			return inMemory(string(data)), err
		}
	}

	return nil, fmt.Errorf("%w: %s of %s", engine.ErrNotFound, name, id)
}
