package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/puddle/v2"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A tx is a transaction. Reads are immediate; writes are sent to the server
// together with the commit.
type tx struct {
	ctx     context.Context
	db      *database
	conn    *pgxpool.Conn
	pending pgx.Batch
	sent    int // number of round trips
	charges []charge
	ended   []engine.Run   // runs that end in it
	events  []engine.Event // published once it is stored
}

// attempts is the maximum number of times that a transaction with conflicts is tried.
const attempts = 20

// write runs do in a transaction. The statements of first are sent with its beginning,
// in one round trip. If another transaction conflicts, all of it is repeated,
// including do.
func (d *database) write(ctx context.Context, first func(b *pgx.Batch), do func(t *tx) error) error {
	for n := 1; ; n++ {
		_, err := d.try(ctx, first, do)
		if n == attempts || !collided(err) {
			return d.fail(err)
		}
	}
}

// try runs do once. alive reports whether the connection is still usable; then an
// error means that nothing was changed.
func (d *database) try(ctx context.Context, first func(b *pgx.Batch), do func(t *tx) error) (alive bool, err error) {
	ctx, answer := within(ctx, d.timeout)
	defer func() { err = answer(err) }()
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release() // it closes a connection that is still in a transaction

	t := &tx{ctx: ctx, db: d, conn: conn}
	var begin pgx.Batch
	begin.Queue("BEGIN")
	if first != nil {
		first(&begin)
	}
	err = conn.SendBatch(ctx, &begin).Close()
	if err == nil {
		err = do(t)
	}
	if err == nil {
		err = t.commit()
	}
	if err != nil {
		if !conn.Conn().IsClosed() {
			_, _ = conn.Exec(context.WithoutCancel(ctx), "ROLLBACK")
		}
		return !conn.Conn().IsClosed(), err
	}
	if err := synced(conn); err != nil {
		return false, err
	}

	for _, event := range t.events {
		d.publish(event)
	}
	return true, nil
}

// commit sends the queued statements, their consequences, and the commit.
func (t *tx) commit() error {
	if len(t.ended) > 0 {
		t.afterEnds()
		if err := t.flush(); err != nil {
			return err
		}
	}
	t.settle()
	t.queue("COMMIT")
	return t.flush()
}

// sendBatch sends statements in one round trip, as a transaction of their own.
func (d *database) sendBatch(ctx context.Context, b *pgx.Batch) (err error) {
	ctx, answer := within(ctx, d.timeout)
	defer func() { err = answer(err) }()
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()

	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	return synced(conn)
}

const uniqueViolation = "23505"

// collided reports whether a transaction can be repeated: it changed nothing, because
// of a conflict with another one.
func collided(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && slices.Contains([]string{
		"40001",         // serialization_failure
		"40P01",         // deadlock_detected
		uniqueViolation, // the next try finds the cause
	}, refused.Code)
}

// fail returns err in the form for callers of the engine.
func (d *database) fail(err error) error {
	switch {
	case errors.Is(err, puddle.ErrClosedPool):
		return engine.ErrClosed
	case unreachable(err) && !errors.Is(err, engine.ErrUnavailable):
		return fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	return err
}

// away are the error codes of a server that is temporarily unavailable, see
// https://www.postgresql.org/docs/current/errcodes-appendix.html.
var away = []string{
	"25006", // read_only_sql_transaction: it has become a standby
	"25P03", // idle_in_transaction_session_timeout: this process hung
	"53300", // too_many_connections
	"57014", // query_canceled: by statement_timeout
	"57P01", // admin_shutdown
	"57P02", // crash_shutdown
	"57P03", // cannot_connect_now
	"57P05", // idle_session_timeout
}

// unreachable reports whether an error means that the server could not be reached,
// or its answer was lost. The end of a caller's context does not count.
func unreachable(err error) bool {
	if errors.Is(err, errSilent) || errors.Is(err, errUnsynced) {
		return true
	}
	if connect, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return !errors.Is(connect, context.Canceled)
	}
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.HasPrefix(refused.Code, "08") || slices.Contains(away, refused.Code) // connection_exception
	}
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}

	_, network := errors.AsType[net.Error](err)
	return network || pgconn.SafeToRetry(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// queue adds a statement to the next flush.
func (t *tx) queue(sql string, args ...any) *pgx.QueuedQuery { return t.pending.Queue(sql, args...) }

// flush sends the queued statements in one round trip.
func (t *tx) flush() error {
	t.sent++
	batch := t.pending
	t.pending = pgx.Batch{}
	return t.conn.SendBatch(t.ctx, &batch).Close()
}

// row immediately runs a query for one row.
func (t *tx) row(sql string, args ...any) pgx.Row {
	t.sent++
	return t.conn.QueryRow(t.ctx, sql, args...)
}

// runs immediately runs a query for [columns].
func (t *tx) runs(sql string, args ...any) ([]row, error) {
	t.sent++
	rows, err := t.conn.Query(t.ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return scanRuns(rows)
}

// publish publishes a change of a run once the transaction is stored.
func (t *tx) publish(kind engine.EventKind, run engine.Run) {
	t.events = append(t.events, engine.RunEvent(kind, run))
}

// more describes data to read with a run, in addition to [columns].
type more struct {
	columns string
	args    []any // parameters from $2 on
	to      []any
}

// onRun locks a run and calls do with it, in a transaction.
func (d *database) onRun(ctx context.Context, id string, m more, do func(t *tx, r row) error) error {
	first, then := lockRun(id, m, do)
	return d.write(ctx, first, then)
}

// onRunShared is like onRun, but in a transaction with other writes: see [joint].
func (d *database) onRunShared(ctx context.Context, id string, m more, do func(t *tx, r row) error) error {
	first, then := lockRun(id, m, do)
	return d.writeShared(ctx, id, first, then)
}

// lockRun returns the functions that lock a run and call do with it.
func lockRun(id string, m more, do func(t *tx, r row) error) (first func(b *pgx.Batch), then func(t *tx) error) {
	var r row
	var missing error
	return func(b *pgx.Batch) {
			missing = nil
			b.Queue("SELECT "+columns+m.columns+" FROM runs r WHERE r.id = $1 FOR UPDATE OF r", append([]any{id}, m.args...)...).QueryRow(func(found pgx.Row) (err error) {
				r, err = scan(found, m.to...)
				if errors.Is(err, pgx.ErrNoRows) {
					missing, err = notFound(id), nil
				}
				return err
			})
		}, func(t *tx) error {
			if missing != nil {
				return missing
			}
			return do(t, r)
		}
}

func notFound(id string) error { return fmt.Errorf("%w: %s", engine.ErrNotFound, id) }
