package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/pglocal"
	"github.com/toolhost/toolhost/internal/pgtest"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// TestUnreachable checks which errors mean that the server is away.
func TestUnreachable(t *testing.T) {
	code := func(code string) error { return fmt.Errorf("query: %w", &pgconn.PgError{Code: code}) }
	for name, c := range map[string]struct {
		err  error
		away bool
	}{
		"nothing":                {nil, false},
		"refused":                {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		"reset":                  {fmt.Errorf("read: %w", &net.OpError{Op: "read", Err: syscall.ECONNRESET}), true},
		"cut off":                {io.ErrUnexpectedEOF, true},
		"shutdown":               {code("57P01"), true},
		"starting up":            {code("57P03"), true},
		"a standby":              {code("25006"), true},
		"too many connections":   {code("53300"), true},
		"connection failure":     {code("08006"), true},
		"disk full":              {code("53100"), false},
		"a bug":                  {code("42601"), false},
		"a conflict":             {code("40001"), false},
		"the caller gave up":     {context.Canceled, false},
		"the caller's deadline":  {fmt.Errorf("timeout: %w", context.DeadlineExceeded), false},
		"an error of the engine": {engine.ErrConflict, false},
	} {
		require.Equal(t, c.away, unreachable(c.err), name)
	}
}

// While the server is away every method says so, and afterwards the engine works again.
func TestAway(t *testing.T) {
	url := pgtest.Schema(t)
	e := open(t, pglocal.With(url, "pool_max_conns", "1"), Options{Poll: -1})
	w, err := e.Join(t.Context(), engine.WorkerInfo{})
	require.NoError(t, err)
	other := open(t, url, Options{Poll: -1})
	cut := func() {
		_, err := other.pool.Exec(t.Context(), "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND application_name = 'toolhost'")
		require.NoError(t, err)
	}

	failed := 0
	for name, do := range map[string]func() error{
		"get":    func() error { _, err := e.Get(t.Context(), "bg_a"); return err },
		"submit": func() error { return w.Submit(t.Context(), run("bg_a", "s"), nil) },
		"claim":  func() error { _, err := w.Claim(t.Context(), 1, engine.Permits{}); return err },
		"value":  func() error { _, err := e.Value(t.Context(), engine.Scope{Session: "s"}, "k"); return err },
		"now":    func() error { _, err := e.Now(t.Context()); return err },
	} {
		conn, err := e.pool.Acquire(t.Context()) // the pool would notice while it is idle
		require.NoError(t, err)
		cut()
		conn.Release()
		if err := do(); err != nil {
			require.ErrorIs(t, err, engine.ErrUnavailable, name)
			failed++
		}
		err = do()
		require.False(t, errors.Is(err, engine.ErrUnavailable), "%s: it is back: %v", name, err)
	}

	require.Positive(t, failed)

	gone := pglocal.With(url, "host", "/nowhere")
	_, err = Open(t.Context(), gone, Options{Poll: -1})
	require.Error(t, err)
	require.True(t, unreachable(err), "%v", err)
}
