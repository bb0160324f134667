package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

const (
	selectActive = `SELECT seq, id, record FROM runs INDEXED BY runs_active WHERE finished IS NULL`
	selectLogged = `SELECT sum(logged) FROM runs INDEXED BY runs_logged WHERE logged > 0`
	selectSizeOf = `SELECT size, ifnull((SELECT length(data) FROM checkpoints k WHERE k.seq = runs.seq), 0) FROM runs WHERE seq = ?`
)

// restoreRuns reads the runs that have not ended, and counts what logs take: an
// index, and the folders of these runs.
func (e *Engine) restoreRuns(ctx context.Context) error {
	var runs []*active
	var damaged []error
	err := e.db.read(ctx, func(c *conn) error {
		ended, err := c.number(selectLogged)
		if err != nil {
			return err
		}
		e.logs.used.Add(ended)
		err = c.query(func(found []driver.Value) error {
			id, _ := found[1].(string)
			r, err := decode(found[0].(int64), id, found[2])
			if err != nil {
				damaged = append(damaged, err)
				return nil
			}
			e.logs.used.Add(e.logs.size(r.Run))
			runs = append(runs, &active{seq: r.seq, run: r.Run})
			return nil
		}, selectActive)
		for _, a := range runs {
			sizes, missing := c.one(selectSizeOf, a.seq)
			if missing == nil && sizes != nil {
				a.size, _ = sizes[0].(int64)
				a.saved, _ = sizes[1].(int64)
			}
			err = errors.Join(err, missing)
		}
		return err
	})
	if err != nil && !damagedFile(err) { // what can be read of a damaged file can be used until the next start
		return err
	}

	for _, a := range runs {
		e.active.add(a)
	}

	return e.db.setRowsAside(ctx, damaged)
}

// Get implements [engine.Engine].
func (e *Engine) Get(ctx context.Context, id string) (engine.Run, error) {
	if run, ok := e.active.light(id); ok {
		return run, nil
	}
	r, err := e.db.load(ctx, id)
	return r.Run, err
}

// Payload implements [engine.Engine].
func (e *Engine) Payload(ctx context.Context, id string, part engine.Part) (data json.RawMessage, err error) {
	err = e.db.read(ctx, func(c *conn) error {
		seq, err := c.number(`SELECT seq FROM runs WHERE id = ?`, id)
		if err == nil && seq == 0 {
			err = fmt.Errorf("%w: %s", engine.ErrNotFound, id)
		}
		for _, p := range payloads {
			if err == nil && p.part == part {
				data, err = blob(c, p.table, seq)
			}
		}
		return err
	})

	return data, err
}

// List implements [engine.Engine].
func (e *Engine) List(ctx context.Context, q engine.Query) (runs []engine.Run, err error) {
	sql, args := selectRuns(q)
	var damaged []error
	err = e.db.read(ctx, func(c *conn) error {
		return c.query(func(found []driver.Value) error {
			id, _ := found[1].(string)
			if run, ok := e.active.light(id); ok {
				runs = append(runs, run)
				return nil
			}
			r, err := decode(found[0].(int64), id, found[2])
			if err != nil {
				damaged = append(damaged, err)
				return nil
			}
			runs = append(runs, r.Run)
			return nil
		}, sql, args...)
	})
	if err = errors.Join(err, e.db.setRowsAside(ctx, damaged)); err != nil {
		return nil, err
	}

	return runs, nil
}

// selectRuns returns the statement for q. It names the index to begin with,
// the one that leaves the fewest runs: SQLite, which knows nothing of the
// numbers, would rather look at all runs than sort a few.
func selectRuns(q engine.Query) (sql string, args []driver.Value) {
	var where []string
	index := ""
	add := func(by, condition string, values ...driver.Value) {
		if index == "" && by != "" {
			index = " INDEXED BY " + by
		}
		where = append(where, condition)
		args = append(args, values...)
	}
	if q.IdempotencyKey != "" {
		add("runs_key", "idempotency_key = ?", q.IdempotencyKey)
	}
	if q.Schedule != "" {
		add("runs_schedule", "schedule = ?", q.Schedule)
	}
	if q.Active {
		add("runs_active", "finished IS NULL")
	}
	if q.Notice {
		add("runs_notice", "notice = 1")
	}
	if q.Session != "" {
		add("runs_session", "session = ?", q.Session)
	}
	if q.Before != "" {
		add("", "seq < (SELECT b.seq FROM runs b WHERE b.id = ? AND (? = '' OR b.session = ?))", q.Before, q.Session, q.Session)
	}

	sql = "SELECT seq, id, record FROM runs" + index
	if len(where) > 0 {
		sql += " WHERE " + strings.Join(where, " AND ")
	}
	sql += " ORDER BY seq DESC"
	if q.Limit > 0 {
		sql += " LIMIT ?"
		args = append(args, int64(q.Limit))
	}

	return sql, args
}

// Acknowledge implements [engine.Engine].
func (e *Engine) Acknowledge(ctx context.Context, session string, ids []string) error {
	return e.db.write(ctx, func(w *conn) (func(), error) {
		var seen []engine.Run
		for _, id := range ids {
			r, err := load(w, id)
			if errors.Is(err, engine.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if r.Session != session || r.Notice != engine.NoticePending {
				continue
			}
			if err := r.acknowledge(w); err != nil {
				return nil, err
			}
			seen = append(seen, r.Run)
		}
		return func() {
			for _, run := range seen {
				e.feed.Publish(engine.RunEvent(engine.EventSeen, run))
			}
		}, nil
	})
}

// Cancel implements [engine.Engine].
func (e *Engine) Cancel(ctx context.Context, id string, c engine.Cancellation, end engine.End) (engine.Run, error) {
	a, release, err := e.active.hold(id)
	if err != nil {
		return engine.Run{}, err
	}
	defer release()

	if a == nil {
		return e.Get(ctx, id)
	}

	r := e.active.row(a)
	if r.Run.Cancel == nil {
		r.Run.Cancel = &c
	}
	if r.Status == engine.StatusQueued {
		return e.end(ctx, a, r.Finish(engine.StatusCanceled, r.Beat, end))
	}
	err = e.update(ctx, r, engine.EventStopping, func() { a.run.Cancel = r.Run.Cancel })

	return r.Run, err
}

// end stores the end of a run that is held: its log, its artifacts and its
// record, in this order. run is the run as it will be, but for ArtifactError.
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
		e.log.Error("artifacts of a background run not written", "task_id", run.ID, "error", err)
		if run.ArtifactError == "" {
			run.ArtifactError = "The output or result file could not be written"
		}
	}
	logged := before
	if x.Whole {
		logged = x.size()
	}
	more := logged - before
	if run.Attempt > 1 {
		earlier := run
		earlier.Attempt--
		logged += e.logs.size(earlier)
	}

	r := row{seq: a.seq, stored: stored{Run: run, Log: &x}}
	r.size = a.size - a.saved + int64(len(run.Result)+len(run.Content)) + file
	record, err := r.encode()
	if err != nil {
		return engine.Run{}, err
	}
	run = run.Light()
	err = e.db.write(ctx, func(w *conn) (func(), error) {
		return func() { e.ended(a, run) }, r.finish(w, record, a.size, logged)
	})
	if err != nil {
		return engine.Run{}, err
	}
	if x.Whole {
		if err := publish(log.dir); err != nil {
			e.log.Warn("log of a background run not put in its place yet", "task_id", run.ID, "error", err)
		}
		e.logs.used.Add(more)
	}

	return run, nil
}

// ended makes an end that is stored known.
func (e *Engine) ended(a *active, run engine.Run) {
	g := e.active
	g.mu.Lock()
	g.drop(a)
	a.run = run
	if run.Notice == engine.NoticePending {
		g.notices = append(g.notices, run.ID)
	}
	g.mu.Unlock()
	e.feed.Publish(engine.RunEvent(engine.EventEnded, run))
}

// Tail implements [engine.Engine].
func (e *Engine) Tail(ctx context.Context, id string, offset int64, max int) (chunk engine.Chunk, err error) {
	if log, attempt, err := e.liveLog(id); log != nil || err != nil {
		if err == nil {
			chunk, err = log.read(offset, max)
			chunk.Attempt = attempt
		}
		return chunk, err
	}

	r, err := e.db.load(ctx, id)
	if err == nil && r.Log == nil { // it has been stored a moment ago
		return e.Tail(ctx, id, offset, max)
	}
	if err == nil {
		chunk, err = e.logs.tail(r, offset, max)
	}
	if err != nil {
		return chunk, fmt.Errorf("reading the log of %s: %w", id, err)
	}
	chunk.Attempt = r.Attempt
	return chunk, nil
}

// liveLog returns the log of a run that has not ended; nil if there is none.
func (e *Engine) liveLog(id string) (*logFile, int, error) {
	e.active.mu.Lock()
	defer e.active.mu.Unlock()

	a := e.active.runs[id]
	if a == nil || !a.stored {
		return nil, 0, nil
	}
	if a.log == nil {
		log, err := e.logs.find(a.run) // of an earlier process, as far as it had been appended
		if err != nil {
			return nil, 0, fmt.Errorf("reading the log of %s: %w", id, err)
		}
		a.log = log
	}

	return a.log, a.run.Attempt, nil
}

// Open implements [engine.Engine]. What [engine.ResultJSON] holds comes from
// the record, so that it is there even if the file is not.
func (e *Engine) Open(ctx context.Context, id, name string) (engine.Artifact, error) {
	r, err := e.db.load(ctx, id)
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
