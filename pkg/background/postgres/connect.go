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
	// statementTimeout is the time after which the server ends a statement, since its connection
	// may be gone.
	statementTimeout = time.Minute

	// idleTimeout is the time after which the server ends an idle transaction: its process may
	// hang while others wait for its locks.
	idleTimeout = 10 * time.Second

	// writeTimeout is the time after which a write is given up. The server may not answer
	// although the connection is open.
	writeTimeout = statementTimeout + 5*time.Second

	// connectTimeout is how long each host of a URL is tried, if the URL does not set it.
	connectTimeout = 10 * time.Second

	// silence is how long a connection may show no sign of life before it is given up.
	silence = 15 * time.Second
)

// configure returns the configuration of connections to the database of a URL or a DSN.
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

// errSilent means that a write got no answer.
var errSilent = errors.New("the database does not answer")

// within returns a context for a write that ends after timeout, with the cause [errSilent]. The
// function answer then replaces the error of the write with that cause.
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

// errUnsynced means that a commit is on the primary, but perhaps not on the
// synchronous standby: a failover may lose it.
var errUnsynced = errors.New("the synchronous standby has not confirmed the commit")

// unsynced is the key in the data of a connection whose commit was not confirmed by a
// standby.
const unsynced = "toolhost_unsynced"

// noteUnsynced records the notice of a server that stopped waiting for its synchronous
// standby because an operator canceled the statement. The server reports such a commit as
// a success.
func noteUnsynced(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" {
		conn.CustomData()[unsynced] = true
	}
}

// synced returns [errUnsynced] if [noteUnsynced] recorded a notice for the last
// commit of a connection.
func synced(conn *pgxpool.Conn) error {
	data := conn.Conn().PgConn().CustomData()
	if data[unsynced] == nil {
		return nil
	}
	delete(data, unsynced)
	return errUnsynced
}
