// Package postgres provides an [engine.Engine] that stores runs in PostgreSQL 15 or newer, for
// any number of processes on any number of machines. [Open] creates the schema, or updates an
// older one.
//
// Stored data is as durable as a commit of the server: see its settings
// synchronous_commit and synchronous_standby_names. All leases and schedules follow
// the server's clock.
package postgres

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// An Engine stores runs in a schema of a PostgreSQL database. Make one with [Open], and close it
// with [Engine.Close]. It is safe for concurrent use.
type Engine struct {
	*database
	scheduleStore
	valueStore

	recorded atomic.Int64 // last value that was read
}

var _ engine.Engine = (*Engine)(nil)

// Options configure an Engine.
type Options struct {
	// Poll is the interval at which watchers read everything again if hints from other
	// processes do not arrive; 0: one second.
	Poll time.Duration

	// NoHints disables NOTIFY, for connections through a pooler that does not forward
	// it. Other processes then see changes when they poll.
	NoHints bool

	clock   func() time.Time // replaces the server's clock; nil: it is not replaced
	timeout time.Duration    // replaces writeTimeout; 0: it is not replaced
}

// Open connects to the database of a URL or a DSN, as in
// https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING, and prepares its
// schema, the first one in search_path. With several hosts, target_session_attrs=read-write
// selects the primary. pool_max_conns is the maximum number of connections; the default is 4, or
// the number of processors if that is more. The error matches [ErrServer] or [ErrNewer] if the
// database cannot be used. The engine does not use ctx after Open has returned.
func Open(ctx context.Context, url string, o Options) (*Engine, error) {
	config, err := configure(url)
	if err != nil {
		return nil, err
	}

	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig.Copy())
	if err != nil {
		return nil, err
	}
	err = prepare(ctx, conn)
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return nil, err
	}

	d := newDatabase(o)
	config.AfterConnect = func(context.Context, *pgx.Conn) error { d.connections.Add(1); return nil }
	if d.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	if o.Poll >= 0 {
		d.hints = startHints(d, config.ConnConfig.Copy(), o)
	}
	return &Engine{database: d, scheduleStore: scheduleStore{d}, valueStore: valueStore{d}}, nil
}

// Weaknesses returns a sentence for each setting of the server that may lead to a loss of
// acknowledged runs.
func (e *Engine) Weaknesses(ctx context.Context) (found []string, err error) {
	var commit, sync, pages string
	err = e.pool.QueryRow(ctx, "SELECT current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes')").Scan(&commit, &sync, &pages)
	if err != nil {
		return nil, e.fail(err)
	}
	if commit == "off" {
		found = append(found, "synchronous_commit is off: a crash of the database loses the runs of its last moments, though they were acknowledged")
	}
	if sync == "off" || pages == "off" {
		found = append(found, "fsync or full_page_writes is off: a crash of the machine may lose or damage all runs")
	}
	return found, nil
}

// Close waits for the requests in progress, and closes all connections. Workers that have not
// left are dead once their leases end.
func (e *Engine) Close() error {
	if e.hints != nil {
		e.hints.close()
	}
	e.pool.Close()
	return nil
}

// Watch implements [engine.Engine].
func (e *Engine) Watch(ctx context.Context, session string) <-chan engine.Event {
	return e.feed.Watch(ctx, session)
}

// Recorded implements [engine.Engine]. If the database does not answer, it returns
// the last known value.
func (e *Engine) Recorded() int64 {
	if !e.hasJoined() {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var used int64
	if err := e.pool.QueryRow(ctx, "SELECT coalesce(sum(used), 0)::bigint FROM totals").Scan(&used); err != nil {
		return e.recorded.Load()
	}
	e.recorded.Store(used)
	return used
}

// Counts implements [engine.Engine]. It returns nil if the database does not answer.
func (e *Engine) Counts() map[engine.Status]int {
	if !e.hasJoined() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	rows, err := e.pool.Query(ctx, "SELECT status, count(*) FROM runs WHERE finished IS NULL GROUP BY status")
	if err != nil {
		return nil
	}
	counts := map[engine.Status]int{}
	var status engine.Status
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&status, &n}, func() error { counts[status] = n; return nil }); err != nil {
		return nil
	}
	return counts
}
