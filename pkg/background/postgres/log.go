package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// The log of a run consists of rows with the appended data. Rows from the middle of a long log
// are removed as it grows. Read back through an [output.Buffer], the remaining rows are the part
// that the log keeps.

// Append implements [engine.Lease]. Concurrent appends of a process become one
// statement.
func (l *lease) Append(ctx context.Context, offset int64, p []byte) error {
	if offset < l.end {
		p = p[min(int64(len(p)), l.end-offset):]
		offset = l.end
	}
	if l.worker.stale() {
		return l.worker.over()
	}

	capacity := int64(max(1, l.run.OutputCap))
	a := &entry{lease: l, offset: offset, data: bytes.Clone(p), capacity: capacity, trim: l.loose+int64(len(p)) > capacity}
	if err := l.worker.db.logs.share(&joint{ctx: ctx, size: int64(len(p)), entry: a}); err != nil {
		return err
	}

	l.end, l.seen = a.end(), a.run
	if l.loose += int64(len(p)); a.trim {
		l.loose = 0
	}
	return nil
}

// An entry is data to append to the log of a run.
type entry struct {
	lease    *lease
	offset   int64
	data     []byte
	capacity int64       // number of bytes that the log keeps, at its beginning and again at its end
	trim     bool        // whether to remove the rows in between
	run      *engine.Run // the run at that time; nil if nothing was stored
}

func (a *entry) end() int64 { return a.offset + int64(len(a.data)) }

const (
	pieceBytes = 64 << 10 // maximum size of a row, in bytes
	logBytes   = 1 << 20  // maximum size of one statement for several runs, in bytes

	// logDelay is the time that the first run that flushes waits for others that flush at the
	// same moment.
	logDelay = 2 * time.Millisecond
)

// pieces calls do with the rows of an entry. It leaves out those that lie between the two parts
// that the log keeps.
func (a *entry) pieces(do func(pos int64, data []byte)) {
	for begin := 0; begin == 0 || begin < len(a.data); begin += pieceBytes {
		pos, piece := a.offset+int64(begin), a.data[begin:min(len(a.data), begin+pieceBytes)]
		if begin == 0 || pos < a.capacity || pos+int64(len(piece)) > a.end()-a.capacity {
			do(pos, piece)
		}
	}
}

// appendLogs appends to the logs of runs whose leases are current. $2 to $4 are the leases,
// $5 to $7 the rows, and $8 to $11 the trims; a row and a trim name the lease by its
// number, from 1 on.
var appendLogs = `WITH mine AS (
		SELECT ` + columns + `, l.n FROM runs r JOIN unnest($2::text[], $3::bigint[], $4::int[]) WITH ORDINALITY AS l (id, epoch, turn, n)
			ON l.id = r.id AND l.epoch = r.epoch AND l.turn = r.turn
		WHERE r.status = 'running' AND ` + live("r.epoch", 1) + ` ORDER BY r.id COLLATE "C" FOR SHARE OF r
	), appended AS (
		INSERT INTO logs SELECT m.seq, p.pos, p.data FROM mine m JOIN unnest($5::int[], $6::bigint[], $7::bytea[]) AS p (n, pos, data) ON p.n = m.n
		ON CONFLICT (run, pos) DO UPDATE SET data = excluded.data
	), trimmed AS (
		DELETE FROM logs USING mine m JOIN unnest($8::int[], $9::bigint[], $10::bigint[], $11::bigint[]) AS t (n, head, before, tail) ON t.n = m.n
		WHERE logs.run = m.seq AND logs.pos >= t.head AND logs.pos < t.before AND logs.pos + length(logs.data) <= t.tail
	) SELECT * FROM mine`

// appendTogether appends entries in one statement.
func (d *database) appendTogether(all []*joint) {
	ctx, cancel := wanted(all)
	defer cancel()

	var err error
	for n := 1; n == 1 || n < attempts && collided(err); n++ {
		err = d.appendEntries(ctx, all)
	}
	for _, j := range all {
		switch {
		case err != nil:
			j.err = d.fail(err)
		case j.entry.run == nil:
			j.err = j.entry.lease.fenced()
		}
	}
}

// appendEntries appends entries, and reads the runs of those that were stored.
func (d *database) appendEntries(ctx context.Context, all []*joint) error {
	var ids []string
	var epochs, at, heads, before, tails []int64
	var turns, rows, trims []int
	var data [][]byte
	for i, j := range all {
		a := j.entry
		a.run = nil // left over from an earlier try
		ids, epochs, turns = append(ids, a.lease.run.ID), append(epochs, a.lease.worker.epoch), append(turns, a.lease.turn)
		a.pieces(func(pos int64, piece []byte) {
			rows, at, data = append(rows, i+1), append(at, pos), append(data, append([]byte{}, piece...))
		})
		if a.trim {
			trims, heads, before, tails = append(trims, i+1), append(heads, a.capacity), append(before, a.offset), append(tails, a.end()-a.capacity)
		}
	}

	var b pgx.Batch
	b.Queue(appendLogs, d.now(), ids, epochs, turns, rows, at, data, trims, heads, before, tails).Query(func(found pgx.Rows) error {
		defer found.Close()
		for found.Next() {
			var n int
			r, err := scan(found, &n)
			if err != nil {
				return err
			}
			all[n-1].entry.run = &r.Run
		}
		return found.Err()
	})
	return d.sendBatch(ctx, &b)
}

// cutLog makes a log end at n.
func (t *tx) cutLog(run, n int64) {
	t.queue("DELETE FROM logs WHERE run = $1 AND pos >= $2", run, n)
	t.queue("UPDATE logs SET data = substr(data, 1, ($2 - pos)::int) WHERE run = $1 AND pos + length(data) > $2", run, n)
	t.queue("INSERT INTO logs VALUES ($1, $2, '')", run, n)
}

// log reads a run and the log of its current attempt.
func (e *Engine) log(ctx context.Context, id string) (log output.Buffer, run engine.Run, err error) {
	var b pgx.Batch
	var missing error
	b.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	b.Queue("SELECT "+columns+" FROM runs r WHERE r.id = $1", id).QueryRow(func(found pgx.Row) error {
		r, err := scan(found)
		if errors.Is(err, pgx.ErrNoRows) {
			missing, err = notFound(id), nil
		}
		log, run = output.NewBuffer(max(1, r.OutputCap)), r.Run
		return err
	})
	b.Queue("SELECT pos, data FROM logs WHERE run = (SELECT seq FROM runs WHERE id = $1) ORDER BY pos", id).Query(func(rows pgx.Rows) error {
		var pos int64
		var data []byte
		_, err := pgx.ForEachRow(rows, []any{&pos, &data}, func() error {
			log.AppendAt(pos, data)
			return nil
		})
		return err
	})
	b.Queue("COMMIT")

	err = e.pool.SendBatch(ctx, &b).Close()
	if err == nil {
		err = missing
	}
	return log, run, e.fail(err)
}

// Tail implements [engine.Engine].
func (e *Engine) Tail(ctx context.Context, id string, offset int64, max int) (engine.Chunk, error) {
	log, run, err := e.log(ctx, id)
	if err != nil {
		return engine.Chunk{}, err
	}
	chunk := log.Read(offset, max)
	chunk.Attempt = run.Attempt
	return chunk, nil
}

// Open implements [engine.Engine].
func (e *Engine) Open(ctx context.Context, id, name string) (engine.Artifact, error) {
	if name != engine.OutputLog && name != engine.ResultJSON {
		return nil, fmt.Errorf("%w: %s of %s", engine.ErrNotFound, name, id)
	}
	log, run, err := e.log(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case !run.Status.Terminal():
		return nil, fmt.Errorf("%w: %s of %s", engine.ErrNotFound, name, id)
	case name == engine.OutputLog:
		return artifact{bytes.NewReader([]byte(log.Output().String()))}, nil
	}

	err = e.pool.QueryRow(ctx, "SELECT result, content FROM runs WHERE id = $1", id).Scan((*[]byte)(&run.Result), (*[]byte)(&run.Content))
	if errors.Is(err, pgx.ErrNoRows) {
		err = notFound(id)
	}
	if err != nil {
		return nil, e.fail(err)
	}
	data, err := run.ResultFile()
	return artifact{bytes.NewReader(data)}, err
}

type artifact struct{ *bytes.Reader }

func (artifact) Close() error { return nil }
