package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

var (
	// ErrNewer means that a newer version of this package made the current
	// schema, which this version can no longer use.
	ErrNewer = errors.New("database of a newer version")

	// ErrServer means that this package does not work with the server.
	ErrServer = errors.New("unsupported database server")
)

// oldestServer is the oldest supported major version of PostgreSQL.
const oldestServer = 15

// migrations are the steps from an empty schema to the current one. A released step
// is never changed, and keeps everything that binaries of the previous step need:
// two versions may use the schema at the same time.
var migrations = [...]string{schema1}

// oldestReader is the minimum number of steps that a binary must know to use the
// current schema.
const oldestReader = 1

// Everything that SQL decides on has a column of its own. The rest of a run is in
// record, its JSON form without its payload. If a value is in both, the column
// counts: see [scan]. Times are nanoseconds of the Unix epoch. Epoch 0 means no
// worker.
const schema1 = `
CREATE TABLE workers (
	epoch bigint PRIMARY KEY,            -- random, never used again
	since bigint NOT NULL,               -- from when on its lease has no gap
	renewed bigint NOT NULL,
	ttl bigint NOT NULL,                 -- 0: it has left
	patience bigint NOT NULL,            -- how long its row is kept afterwards
	picky boolean NOT NULL,              -- it takes what it offers, and not every run
	places integer NOT NULL,
	about json NOT NULL
);
CREATE TABLE offers (                    -- what workers can start
	epoch bigint NOT NULL REFERENCES workers ON DELETE CASCADE,
	tool text COLLATE "C" NOT NULL,
	version text COLLATE "C" NOT NULL,
	withdrawn bigint,                    -- when it was; NULL: it was not
	PRIMARY KEY (epoch, tool, version)
);
CREATE INDEX offers_tool ON offers (tool, version);
CREATE TABLE runs (
	seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- about in the order of submission
	id text COLLATE "C" NOT NULL UNIQUE,
	session text COLLATE "C" NOT NULL,
	owner text COLLATE "C" NOT NULL,     -- of the session, when it was stored
	key text COLLATE "C",                -- of idempotency
	schedule text COLLATE "C",
	parent text COLLATE "C",
	after text COLLATE "C",
	tool text COLLATE "C" NOT NULL,
	version text COLLATE "C" NOT NULL,   -- of the tool that it is started with; '': any
	kind text NOT NULL,
	plugin text NOT NULL,
	created bigint NOT NULL,
	parked boolean NOT NULL,             -- its origin, which has permits of its own
	held boolean NOT NULL,
	status text NOT NULL,
	woken boolean NOT NULL,
	attempt integer NOT NULL,
	epoch bigint NOT NULL,               -- of the worker that claimed it or works on it
	turn integer NOT NULL,               -- counts its leases
	heartbeat bigint,                    -- of its worker, when it began to work on it
	stop boolean NOT NULL,               -- it was canceled
	wake bigint,                         -- while it is waiting
	await text[] COLLATE "C",
	started bigint,
	finished bigint,                     -- NULL until the run is terminal
	error text,                          -- the kind of it
	notice smallint NOT NULL,            -- 0: none, 1: pending, 2: seen
	notifier bigint NOT NULL DEFAULT 0,  -- the worker that took its notice
	size bigint NOT NULL,                -- as quotas count it
	search text NOT NULL,                -- the tool, the title and the error, in lower case
	beat json NOT NULL,
	record json NOT NULL,
	args bytea, result bytea, content bytea, calls bytea, checkpoint bytea, state bytea
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX runs_key ON runs (session, key) WHERE key IS NOT NULL;
CREATE INDEX runs_session ON runs (session, seq);
CREATE INDEX runs_open ON runs (seq) WHERE finished IS NULL;
CREATE INDEX runs_queue ON runs (session, seq) WHERE status = 'queued' AND epoch = 0 AND NOT held;
CREATE INDEX runs_claimed ON runs (owner, session) WHERE finished IS NULL AND epoch <> 0;
CREATE INDEX runs_epoch ON runs (epoch) WHERE finished IS NULL AND epoch <> 0;
CREATE INDEX runs_wake ON runs (wake) WHERE status = 'waiting' AND wake IS NOT NULL;
CREATE INDEX runs_await ON runs USING gin (await) WHERE status = 'waiting';
CREATE INDEX runs_schedule ON runs (schedule) WHERE schedule IS NOT NULL;
CREATE INDEX runs_parent ON runs (parent) WHERE parent IS NOT NULL;
CREATE INDEX runs_notice ON runs (session, finished, seq) WHERE notice = 1;
CREATE INDEX runs_notices ON runs (finished, seq) WHERE notice = 1;
CREATE INDEX runs_ended ON runs (session, finished DESC, seq DESC) WHERE finished IS NOT NULL;
CREATE INDEX runs_spare ON runs (finished, seq) WHERE finished IS NOT NULL AND notice <> 1;
CREATE TABLE logs (                      -- of the current attempt
	run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
	pos bigint NOT NULL,                 -- in the stream
	data bytea NOT NULL,
	PRIMARY KEY (run, pos)
);
CREATE TABLE schedules (
	seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id text COLLATE "C" NOT NULL UNIQUE,
	session text COLLATE "C" NOT NULL,
	owner text COLLATE "C" NOT NULL,
	enabled boolean NOT NULL,
	next bigint,                         -- NULL if it will not fire again
	changed bigint NOT NULL,
	revision bigint NOT NULL,
	size bigint NOT NULL,
	record json NOT NULL,
	args bytea
);
CREATE INDEX schedules_session ON schedules (session);
CREATE INDEX schedules_due ON schedules (next) WHERE enabled AND next IS NOT NULL;
CREATE INDEX schedules_spare ON schedules (changed, seq) WHERE NOT enabled;
CREATE TABLE scopes (                    -- of values
	seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	session text COLLATE "C" NOT NULL,
	name text COLLATE "C" NOT NULL,
	run text COLLATE "C" NOT NULL,       -- '' or the run whose mailbox it is
	owner text COLLATE "C" NOT NULL,
	version bigint NOT NULL,             -- of the last write
	count bigint NOT NULL,
	bytes bigint NOT NULL,               -- of keys and data
	changed bigint NOT NULL,
	UNIQUE (session, name, run)
);
CREATE TABLE pairs (
	scope bigint NOT NULL REFERENCES scopes ON DELETE CASCADE,
	key bytea NOT NULL,
	version bigint NOT NULL,
	at bigint NOT NULL,
	expires bigint,
	data bytea NOT NULL,
	PRIMARY KEY (scope, key)
);
CREATE INDEX pairs_expiry ON pairs (scope, expires) WHERE expires IS NOT NULL;
CREATE TABLE accounts (                  -- what the records of owners take, in parts that are written apart
	owner text COLLATE "C" NOT NULL,
	part integer NOT NULL,
	used bigint NOT NULL,
	evictable bigint NOT NULL,
	PRIMARY KEY (owner, part)
) WITH (fillfactor = 50);
CREATE TABLE totals (                    -- their sum
	part integer PRIMARY KEY,
	used bigint NOT NULL
) WITH (fillfactor = 50);
`

// The advisory locks of this package, by the first of their two keys. The second
// one is 0, or the hash of a name.
const (
	lockSchema  = 0x746c0001 + iota // one process migrates
	lockPermits                     // shared by submissions, exclusive for claims
	lockSession                     // submissions of one session
	lockOwner                       // submissions of one owner
	lockRoom                        // one transaction at a time makes room
	lockPrune                       // one process prunes
	lockCount                       // schedules of one session
)

// prepare checks the server, and brings the schema to the current version.
func prepare(ctx context.Context, conn *pgx.Conn) error {
	if err := checkServer(ctx, conn); err != nil {
		return err
	}
	return migrate(ctx, conn, migrations[:], oldestReader)
}

// checkServer refuses servers without reliable locks, and servers that are too old.
func checkServer(ctx context.Context, conn *pgx.Conn) error {
	var version, number string
	if err := conn.QueryRow(ctx, "SELECT version(), current_setting('server_version_num')").Scan(&version, &number); err != nil {
		return err
	}
	n, _ := strconv.Atoi(number)
	switch {
	case !strings.HasPrefix(version, "PostgreSQL ") || strings.Contains(version, "Cockroach"):
		return fmt.Errorf("%w: %.60s: its advisory locks may not hold; use PostgreSQL %d or newer", ErrServer, version, oldestServer)
	case n < oldestServer*10000:
		return fmt.Errorf("%w: PostgreSQL %d.%d; use %d or newer", ErrServer, n/10000, n%10000, oldestServer)
	}
	return nil
}

// migrate takes the missing steps, all in one transaction.
func migrate(ctx context.Context, conn *pgx.Conn, steps []string, reader int) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()

	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, hashtext(current_schema()))", lockSchema); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS toolhost_schema (version integer NOT NULL, oldest_reader integer NOT NULL)"); err != nil {
		return fmt.Errorf("making the schema: %w", err)
	}
	var version, oldest int
	switch err := tx.QueryRow(ctx, "SELECT version, oldest_reader FROM toolhost_schema").Scan(&version, &oldest); {
	case errors.Is(err, pgx.ErrNoRows):
		if _, err := tx.Exec(ctx, "INSERT INTO toolhost_schema VALUES (0, 0)"); err != nil {
			return err
		}
	case err != nil:
		return err
	case oldest > len(steps):
		return fmt.Errorf("%w: it has version %d and needs a program that knows version %d, this one knows up to %d; use the newer program, or another database",
			ErrNewer, version, oldest, len(steps))
	}

	for i := version; i < len(steps); i++ {
		if _, err := tx.Exec(ctx, steps[i]); err != nil {
			return fmt.Errorf("bringing the schema to version %d: %w", i+1, err)
		}
	}
	if version < len(steps) {
		if _, err := tx.Exec(ctx, "UPDATE toolhost_schema SET version = $1, oldest_reader = $2", len(steps), reader); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}
