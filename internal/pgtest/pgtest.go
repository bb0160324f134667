// Package pgtest creates schemas for tests in a PostgreSQL server, which it starts if necessary:
// see [pglocal].
package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/pglocal"
)

// Server is the environment variable that holds the URL of an existing server to use. Without it,
// the package starts a server of its own.
const Server = "TOOLHOST_POSTGRES"

var shared struct {
	once    sync.Once
	cluster *pglocal.Cluster
	err     error
}

// Main runs the tests of a package, and then stops the server that they have shared.
func Main(m *testing.M) {
	code := m.Run()
	if shared.cluster != nil {
		shared.cluster.Stop()
	}
	os.Exit(code)
}

// Schema returns the URL of a new schema in the server that the tests of a package share. If
// PostgreSQL is missing, the test is skipped, or fails if CI=true is set. A package that calls
// Schema must use [Main] in its TestMain.
func Schema(t testing.TB) string {
	t.Helper()
	fulltest.Only(t, "starts PostgreSQL")
	shared.once.Do(func() {
		if address := os.Getenv(Server); address != "" {
			shared.cluster = &pglocal.Cluster{URL: address}
			return
		}
		shared.cluster, shared.err = pglocal.Start("fsync=off", "full_page_writes=off", "synchronous_commit=off")
	})
	Need(t, shared.err)

	name := "t_" + strings.ToLower(rand.Text())
	run := func(sql string) error {
		conn, err := pgx.Connect(context.Background(), shared.cluster.URL)
		if err != nil {
			return err
		}
		_, err = conn.Exec(context.Background(), sql)
		return errors.Join(err, conn.Close(context.Background()))
	}
	if err := run("CREATE SCHEMA " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run("DROP SCHEMA " + name + " CASCADE") })
	return pglocal.With(shared.cluster.URL, "search_path", name)
}

// Need skips a test if err means that PostgreSQL is not installed. If CI=true is set, or for any
// other error, the test fails.
func Need(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") != "true":
		t.Skipf("%v: install it (apt-get install postgresql), or set %s", err, Server)
	case err != nil:
		t.Fatal(err)
	}
}
