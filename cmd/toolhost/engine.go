package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/postgres"
)

// Settings for an engine that several hosts share.
const (
	sharedLease   = time.Minute      // longer than a failover of most databases
	connectWithin = 30 * time.Second // includes updating the schema
)

// connect connects to the configured engine, or returns nil if none is configured. Call
// disconnect at the end.
func (a *app) connect(ctx context.Context) (e engine.Engine, disconnect func(), err error) {
	if a.config.engine == "" {
		return nil, func() {}, nil
	}

	opening, cancel := context.WithTimeoutCause(ctx, connectWithin, fmt.Errorf("it does not answer within %v", connectWithin))
	defer cancel()
	shared, err := postgres.Open(opening, a.config.engine, postgres.Options{})
	var weak []string
	if err == nil {
		weak, err = shared.Weaknesses(opening)
	}
	if err != nil {
		if shared != nil {
			_ = shared.Close()
		}
		return nil, nil, unconnected(ctx, opening, a.config.engine, err)
	}

	a.config.server.Runs.LeaseTTL = cmp.Or(a.config.server.Runs.LeaseTTL, sharedLease)
	a.config.server.Name, a.config.server.Version = hostName(a.config.listen), version()
	for _, text := range weak {
		a.announceAs(slog.LevelWarn, "problem: engine: "+text)
	}
	return shared, func() { within(endGrace, func() { _ = shared.Close() }) }, nil
}

// hostName returns the name by which a server is known among those that share its engine.
// It consists of the machine and the port, since several servers may run on one machine.
func hostName(listen string) string {
	name, _ := os.Hostname() // empty if unknown
	if _, port, err := net.SplitHostPort(listen); err == nil && name != "" && port != "0" {
		name = net.JoinHostPort(name, port)
	}
	return name
}

// unconnected returns the error for a database that cannot be used, with a remedy.
func unconnected(ctx, opening context.Context, database string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if opening.Err() != nil {
		err = errors.Join(context.Cause(opening), err)
	}
	hint := "start the database, or correct engine in the configuration"
	if errors.Is(err, postgres.ErrNewer) || errors.Is(err, postgres.ErrServer) {
		hint = ""
	}
	return &usageError{fmt.Errorf("engine %s: %w", withoutPassword(database), err), hint}
}

// checkEngine checks the engine's URL as well as it can without connecting to the
// database.
func (c configCheck) checkEngine() {
	if c.engine == "" {
		return
	}
	u, err := url.Parse(c.engine)
	if err != nil || !slices.Contains([]string{"postgres", "postgresql"}, u.Scheme) {
		c.problem("engine", "expected the URL of a PostgreSQL database, such as postgres://user@host/database")
		return
	}
	for name := range u.Query() {
		if strings.Contains(name, "password") {
			c.problem("engine", "%s stands in the query, where it is shown: write user:password@host, or set PGPASSWORD", name)
		}
	}
}
