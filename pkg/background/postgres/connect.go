package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// statementTimeout ends what a server does for a connection that is gone.
	statementTimeout = time.Minute

	// idleTimeout ends a transaction whose process stands still: others wait for its locks.
	idleTimeout = 10 * time.Second

	// writeTimeout ends a write that a server does not answer, though its connection stands.
	writeTimeout = statementTimeout + 5*time.Second

	// connectTimeout is how long one of the hosts of a URL is tried, if the URL says nothing.
	connectTimeout = 10 * time.Second

	// silence is after what time without a sign of life a connection is given up.
	silence = 15 * time.Second
)

// configure returns how connections are made to the database that a URL or a DSN names.
func configure(url string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("the address of the database: %w", err)
	}

	for name, value := range map[string]string{
		"application_name":                    "toolhost",
		"plan_cache_mode":                     "force_generic_plan", // planning takes longer than most statements
		"statement_timeout":                   fmt.Sprint(statementTimeout.Milliseconds()),
		"idle_in_transaction_session_timeout": fmt.Sprint(idleTimeout.Milliseconds()),
	} {
		params := config.ConnConfig.RuntimeParams
		params[name] = cmp.Or(params[name], value)
	}

	conn := config.ConnConfig
	conn.ConnectTimeout = cmp.Or(conn.ConnectTimeout, connectTimeout)
	alive := net.KeepAliveConfig{Enable: true, Idle: silence / 3, Interval: silence / 3, Count: 2}
	conn.DialFunc = (&net.Dialer{Timeout: conn.ConnectTimeout, KeepAliveConfig: alive, Control: giveUp}).DialContext
	conn.OnNotice = noteUnsynced
	config.PingTimeout = connectTimeout
	return config, nil
}

// errSilent says that a write got no answer.
var errSilent = errors.New("the database does not answer")

// within bounds a write. Its end is [errSilent]: answer returns the error of the write as
// that if it is.
func within(ctx context.Context, timeout time.Duration) (bounded context.Context, answer func(err error) error) {
	bounded, cancel := context.WithTimeoutCause(ctx, timeout, errSilent)
	return bounded, func(err error) error {
		if err != nil && context.Cause(bounded) == errSilent {
			err = errSilent
		}
		cancel()
		return err
	}
}

// errUnsynced says that a commit is on the primary, and perhaps not on the synchronous
// standby: after a failover it may be gone.
var errUnsynced = errors.New("the synchronous standby has not confirmed the commit")

// unsynced is set in the data of a connection whose commit a standby has not confirmed.
const unsynced = "toolhost_unsynced"

// noteUnsynced hears that a server gave up waiting for its synchronous standby, because an
// operator canceled the statement. The server reports such a commit as a success.
func noteUnsynced(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" {
		conn.CustomData()[unsynced] = true
	}
}

// synced returns [errUnsynced] if the last commit of a connection was one that
// [noteUnsynced] heard of.
func synced(conn *pgxpool.Conn) error {
	data := conn.Conn().PgConn().CustomData()
	if data[unsynced] == nil {
		return nil
	}
	delete(data, unsynced)
	return errUnsynced
}
