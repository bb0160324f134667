package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A lease implements [engine.Lease].
type lease struct {
	worker     *worker
	seq        int64
	turn       int
	run        engine.Run
	args       json.RawMessage
	checkpoint []byte
	state      []byte

	said  engine.Beat // last reported beat
	seen  *engine.Run // the run when its log last grew
	end   int64       // length of its log
	loose int64       // bytes appended since the log was last trimmed
}

// Run implements [engine.Lease].
func (l *lease) Run() engine.Run { return l.run }

// Checkpoint implements [engine.Lease].
func (l *lease) Checkpoint() []byte { return bytes.Clone(l.checkpoint) }

// State implements [engine.Lease].
func (l *lease) State() []byte { return bytes.Clone(l.state) }

func (l *lease) fenced() error {
	return fmt.Errorf("%w: %s, attempt %d", engine.ErrFenced, l.run.ID, l.run.Attempt)
}

// write is like [worker.onRun], but requires that the lease is the run's current one.
func (l *lease) write(ctx context.Context, m more, do func(t *tx, r row) error) error {
	return l.worker.onRun(ctx, l.run.ID, m, l.current(do))
}

// shared is like write, but in a transaction with other writes: see [joint].
func (l *lease) shared(ctx context.Context, m more, do func(t *tx, r row) error) error {
	return l.worker.onRunShared(ctx, l.run.ID, m, l.current(do))
}

// current makes do require that the lease is the run's current one.
func (l *lease) current(do func(t *tx, r row) error) func(t *tx, r row, now time.Time) error {
	return func(t *tx, r row, _ time.Time) error {
		if r.turn != l.turn || r.Run.Status != engine.StatusRunning {
			return l.fenced()
		}
		return do(t, r)
	}
}

// Report implements [engine.Lease]. If only the output has grown, it is stored with the
// next renewal: the row of a run is much larger than a line of output.
func (l *lease) Report(ctx context.Context, b engine.Beat) error {
	silent := b
	silent.OutputBytes, silent.LastOutputAt = l.said.OutputBytes, l.said.LastOutputAt
	if silent.Equal(l.said) && b.OutputBytes > l.said.OutputBytes && l.seen != nil {
		run := *l.seen
		run.Beat, l.said = b, b
		l.worker.db.publish(engine.RunEvent(engine.EventBeat, run))
		return nil
	}

	err := l.shared(ctx, more{}, func(t *tx, r row) error {
		if b.Equal(r.Beat) {
			return nil
		}
		beat, err := json.Marshal(b)
		if err != nil {
			return err
		}
		r.Beat = b
		t.queue("UPDATE runs SET beat = $2 WHERE seq = $1", r.seq, beat)
		t.publish(engine.EventBeat, r.Run)
		return nil
	})
	if err == nil {
		l.said = b
	}
	return err
}

// Save implements [engine.Lease].
func (l *lease) Save(ctx context.Context, data []byte) error {
	var had int
	return l.shared(ctx, more{columns: ", coalesce(length(checkpoint), 0)", to: []any{&had}}, func(t *tx, r row) error {
		before := r
		r.size += int64(len(data) - had)
		r.with("checkpoint", append([]byte{}, data...))
		r.Run = r.Checkpointed(l.run, l.checkpoint, data)
		return t.update(before, r)
	})
}

// Complete implements [engine.Lease].
func (l *lease) Complete(ctx context.Context, status engine.Status, b engine.Beat, end engine.End) (run engine.Run, err error) {
	var kept keptParts
	err = l.shared(ctx, kept.more(), func(t *tx, r row) error {
		run, err = t.end(r, r, kept, status, b, end)
		return err
	})
	return run, err
}

// keptParts are the stored parts of a run, besides its record, that its end depends on.
type keptParts struct {
	calls          []byte
	args           int64 // bytes
	logged, output int64 // length of the log, and number of bytes of it that are kept
}

// more returns the columns to read with the run.
func (k *keptParts) more() more {
	return more{
		columns: `, calls, coalesce(length(args), 0), coalesce((SELECT max(pos + length(data)) FROM logs WHERE run = r.seq), 0),
			coalesce((SELECT sum(length(data)) FROM logs WHERE run = r.seq), 0)::bigint`,
		to: []any{&k.calls, &k.args, &k.logged, &k.output},
	}
}

// end stores the end of a run. before is the run as it was read.
func (t *tx) end(before, r row, kept keptParts, status engine.Status, b engine.Beat, end engine.End) (engine.Run, error) {
	r.Run.Calls = kept.calls
	b.OutputBytes = max(b.OutputBytes, kept.logged)
	r.Run = r.Finish(status, b, end)
	for name, data := range map[string][]byte{"result": r.Result, "content": r.Content, "calls": r.Calls, "checkpoint": nil, "state": nil} {
		r.with(name, data)
	}
	r.size = r.Size() + kept.args + min(kept.output, int64(max(1, r.OutputCap)))
	r.Run, r.epoch = r.Light(), 0
	if err := t.update(before, r); err != nil {
		return engine.Run{}, err
	}
	t.publish(engine.EventEnded, r.Run)
	t.ended = append(t.ended, r.Run)
	return r.Run, nil
}

// afterEnds queues the statements that follow from the ends of runs. They come after all ends,
// so that waiting runs see each of them, and together, so that rows are locked in one order.
func (t *tx) afterEnds() {
	var sessions, ids []string
	for _, r := range t.ended {
		sessions, ids = append(sessions, r.Session), append(ids, r.ID)
	}
	t.dropScopes("name = '' AND (session, run) IN (SELECT * FROM unnest($1::text[], $2::text[]))", sessions, ids)
	t.resume("r.await && $1", ids)
}

// resume makes the next flush queue the waiting runs that match.
func (t *tx) resume(where string, args ...any) {
	t.queue("UPDATE runs r SET status = 'queued', woken = true WHERE r.seq IN (SELECT r.seq FROM runs r WHERE r.status = 'waiting' AND "+where+
		" ORDER BY r.seq FOR UPDATE) AND r.status = 'waiting' RETURNING "+columns, args...).Query(func(rows pgx.Rows) error {
		woken, err := scanRuns(rows)
		sortRows(woken)
		for _, r := range woken {
			t.publish(engine.EventQueued, r.Run)
		}
		return err
	})
}

// Wake implements [engine.Worker].
func (w *worker) Wake(ctx context.Context, now time.Time, max int) (n int, next time.Time, err error) {
	err = w.write(ctx, nil, func(t *tx, _ time.Time) error {
		woken, err := t.runs(`UPDATE runs r SET status = 'queued', woken = true WHERE r.seq IN (
			SELECT seq FROM runs WHERE status = 'waiting' AND wake <= $1 ORDER BY wake, seq LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING `+columns, now.UnixNano(), max)
		if err != nil {
			return err
		}
		n = len(woken)
		for _, r := range woken {
			t.publish(engine.EventQueued, r.Run)
		}
		var earliest *int64
		err = t.row("SELECT min(wake) FROM runs WHERE status = 'waiting' AND wake IS NOT NULL").Scan(&earliest)
		next = instant(earliest)
		return err
	})
	return n, next, err
}

// Suspend implements [engine.Lease].
func (l *lease) Suspend(ctx context.Context, s engine.Suspension) (run engine.Run, err error) {
	var had waitingParts
	err = l.write(ctx, had.more(), func(t *tx, r row) error {
		if err := s.Check(r.Run); err != nil {
			return err
		}
		run, err = l.suspend(t, r, had, s)
		return err
	})
	return run, err
}

// waitingParts are the stored parts that a suspension replaces or depends on.
type waitingParts struct {
	state, calls int64 // bytes
}

func (p *waitingParts) more() more {
	return more{
		columns: `, coalesce(length(state), 0), coalesce(length(calls), 0)`,
		to:      []any{&p.state, &p.calls},
	}
}

// suspend stores a suspension.
func (l *lease) suspend(t *tx, r row, had waitingParts, s engine.Suspension) (engine.Run, error) {
	before, state := r, had.state
	switch {
	case s.Drop:
		state = 0
		r.with("state", nil)
	case s.State != nil:
		state = int64(len(s.State))
		r.with("state", s.State)
	}
	fresh, err := t.newChildren(s.Children)
	if err != nil {
		return engine.Run{}, err
	}
	if err := t.addChildren(l.worker, r, fresh, max(0, state-had.state)); err != nil {
		return engine.Run{}, err
	}

	r.Run = r.Suspended(s, l.end)
	r.size += state - had.state
	if s.Calls != nil {
		r.with("calls", r.Calls)
		r.size += int64(len(r.Calls)) - had.calls
	}
	r.Run = r.Light()
	if s.Hold {
		return r.Run, t.update(before, r)
	}

	happened, err := t.happened(r)
	if err != nil {
		return engine.Run{}, err
	}
	r.epoch = 0
	t.publish(engine.EventWaiting, r.Run)
	if happened {
		r.Run = r.Resumed()
		t.publish(engine.EventQueued, r.Run)
	}
	return r.Run, t.update(before, r)
}

// addChildren stores children of a run. It first makes room for them, and for size more bytes.
func (t *tx) addChildren(w *worker, parent row, children []engine.Run, size int64) error {
	for _, child := range children {
		size += child.Size()
	}
	if size > 0 {
		var found room
		var batch pgx.Batch
		t.db.readRoom(&batch, parent.Session, &found)
		if err := t.conn.SendBatch(t.ctx, &batch).Close(); err != nil {
			return err
		}
		if err := t.makeRoom(found, parent.Session, size); err != nil {
			return err
		}
	}

	for _, child := range children {
		child.Status = engine.StatusQueued
		args, err := w.insertArgs(row{Run: child, owner: parent.owner, size: child.Size()}, 0, 0)
		if err != nil {
			return err
		}
		t.queue(fmt.Sprintf(insertAndCharge, ""), args...).QueryRow(func(found pgx.Row) error {
			stored, err := (&row{}).stored(found)
			if err == nil && !stored {
				err = w.over()
			}
			return err
		})
		t.publish(engine.EventQueued, child)
	}
	if len(children) == 0 {
		return nil
	}
	return t.flush() // before the commit, which a child that is not stored must prevent
}

// newChildren returns the children that are not stored yet.
func (t *tx) newChildren(children []engine.Run) (fresh []engine.Run, err error) {
	for _, child := range children {
		a := admission{run: child}
		var batch pgx.Batch
		a.run.Parent = "" // the parent is locked and was checked
		a.readRun(&batch)
		if err := t.conn.SendBatch(t.ctx, &batch).Close(); err != nil {
			return nil, err
		}
		switch err := a.refusal(); {
		case a.exists || a.keyed != "":
			continue
		case err != nil:
			return nil, err
		}
		fresh = append(fresh, child)
	}
	return fresh, nil
}

// happened reports whether an event that a waiting run waits for, other than a time,
// has already happened. Until the end of the transaction, none of the runs that it
// waits for can end.
func (t *tx) happened(r row) (bool, error) {
	var mail int64 // read once the run is locked: after that nobody sends any
	t.queue("SELECT coalesce(max(version), 0) FROM scopes WHERE session = $1 AND name = '' AND run = $2", r.Session, r.ID).
		QueryRow(func(found pgx.Row) error { return found.Scan(&mail) })
	var active []string
	t.queue("SELECT id FROM runs WHERE id = ANY($1) AND finished IS NULL ORDER BY id COLLATE \"C\" FOR SHARE", r.Await).Query(func(rows pgx.Rows) (err error) {
		active, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err := t.flush(); err != nil {
		return false, err
	}

	known := map[string]bool{}
	for _, id := range r.Await {
		known[id] = true
	}
	return mail > r.Mail || len(active) < len(known), nil
}
