package postgres

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A database is shared by all parts of an engine: connections, transactions, clock and
// events.
type database struct {
	pool        *pgxpool.Pool
	feed        engine.Feed
	clock       func() time.Time // nil: the server's clock
	hints       *hints           // nil: none are sent or received
	timeout     time.Duration    // timeout of a write
	connections atomic.Int64     // number of connections made so far

	writes group // group of run writes
	logs   group // group of log writes

	mu     sync.Mutex
	quota  engine.Quota // quota of the last Join
	joined bool
}

// newDatabase returns a database without connections.
func newDatabase(o Options) *database {
	d := &database{clock: o.clock, timeout: cmp.Or(o.timeout, writeTimeout)}
	d.writes = group{most: groupLeaders, bytes: groupBytes, together: d.together}
	d.logs = group{most: 1, delay: logDelay, bytes: logBytes, together: d.appendTogether}
	return d
}

// serverNow returns SQL for the time that leases follow: the parameter with the given number or,
// if it is NULL, the server's clock.
func serverNow(parameter int) string {
	return fmt.Sprintf("coalesce($%d::bigint, (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint)", parameter)
}

// now returns the parameter for [serverNow].
func (d *database) now() *int64 {
	if d.clock == nil {
		return nil
	}
	now := d.clock().UnixNano()
	return &now
}

// Now implements [engine.Engine].
func (d *database) Now(ctx context.Context) (time.Time, error) {
	var now int64
	err := d.pool.QueryRow(ctx, "SELECT "+serverNow(1), d.now()).Scan(&now)
	return instant(&now), d.fail(err)
}

// quotaNow returns the quota of the last Join.
func (d *database) quotaNow() engine.Quota {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.quota
}

// hasJoined reports whether there was a Join.
func (d *database) hasJoined() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.joined
}
