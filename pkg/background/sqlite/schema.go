package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrNewer means that a newer version of this package wrote the database.
var ErrNewer = errors.New("database of a newer version")

// ErrForeign means that the database file belongs to another program.
var ErrForeign = errors.New("database of another program")

// applicationID identifies our database files, see PRAGMA application_id: "tlhs".
const applicationID = 0x746c6873

// firstVersion is the PRAGMA user_version of a database that has taken the first step. Databases
// with a lower version were made before that step became the first one.
const firstVersion = 8

// migrations are the steps from an empty database to the current schema. PRAGMA
// user_version counts them, from firstVersion on. A released step is never changed.
var migrations = [...]string{schema1, schema2}

// In runs, everything without a column of its own is in record, the JSON form
// of a stored. The arguments and the result of a run may be large, and have
// tables of their own. Times are nanoseconds of the Unix epoch.
const schema1 = `
CREATE TABLE runs (
	seq INTEGER PRIMARY KEY,           -- in the order of submission
	id TEXT NOT NULL UNIQUE,
	session TEXT NOT NULL,
	idempotency_key TEXT,
	schedule TEXT,
	parent TEXT,
	finished INTEGER,                  -- NULL until the run is terminal
	notice INTEGER NOT NULL DEFAULT 0, -- 1: pending
	logged INTEGER NOT NULL DEFAULT 0, -- bytes of its logs on disk, once it is terminal
	size INTEGER NOT NULL DEFAULT 0,   -- as quotas count it
	record BLOB NOT NULL
);
CREATE INDEX runs_session ON runs (session);
CREATE INDEX runs_active ON runs (seq, session) WHERE finished IS NULL; -- few, and new ones come at its end
CREATE INDEX runs_key ON runs (idempotency_key, session) WHERE idempotency_key IS NOT NULL;
CREATE INDEX runs_schedule ON runs (schedule) WHERE schedule IS NOT NULL;
CREATE INDEX runs_parent ON runs (parent, session) WHERE parent IS NOT NULL;
CREATE INDEX runs_notice ON runs (session, finished, seq) WHERE notice = 1;
CREATE INDEX runs_ended ON runs (session, finished DESC, seq DESC, notice) WHERE finished IS NOT NULL;
CREATE INDEX runs_logged ON runs (finished, seq, logged) WHERE logged > 0;
CREATE INDEX runs_spare ON runs (finished, seq, session, size) WHERE finished IS NOT NULL AND notice = 0; -- in the order of eviction
CREATE TABLE facets (                  -- what runs are searched by
	run INTEGER PRIMARY KEY,           -- its seq
	of_session TEXT NOT NULL,
	tool TEXT NOT NULL,
	kind TEXT NOT NULL,
	plugin TEXT NOT NULL,
	status TEXT NOT NULL,              -- '' until the run is terminal
	error TEXT,                        -- the kind of it
	created INTEGER NOT NULL,
	started INTEGER,                   -- NULL until the run is terminal
	text TEXT NOT NULL                 -- the tool, the title and the error, in lower case
);
CREATE TABLE args (seq INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE results (seq INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE contents (seq INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE checkpoints (seq INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE states (seq INTEGER PRIMARY KEY, data BLOB NOT NULL); -- of waiting runs
CREATE TABLE calls (seq INTEGER PRIMARY KEY, data BLOB NOT NULL);  -- what runs have called
-- The folders of runs whose records were removed, until they are removed too: after a
-- crash in between, the next start removes these and no others.
CREATE TABLE removals (id TEXT PRIMARY KEY, attempt INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE schedules (
	seq INTEGER PRIMARY KEY,           -- in the order they were made
	id TEXT NOT NULL UNIQUE,
	session TEXT NOT NULL,
	enabled INTEGER NOT NULL,
	changed INTEGER NOT NULL,
	size INTEGER NOT NULL DEFAULT 0,
	record BLOB NOT NULL
);
CREATE INDEX schedules_session ON schedules (session);
CREATE INDEX schedules_enabled ON schedules (session) WHERE enabled = 1;
CREATE INDEX schedules_spare ON schedules (changed, seq, session, size) WHERE enabled = 0;
CREATE TABLE schedule_args (seq INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE scopes (                  -- of values
	seq INTEGER PRIMARY KEY,
	session TEXT NOT NULL,
	name TEXT NOT NULL,                -- '': the values of the session itself
	version INTEGER NOT NULL,          -- of the last write
	count INTEGER NOT NULL,
	bytes INTEGER NOT NULL,            -- of keys and data
	changed INTEGER NOT NULL,
	UNIQUE (session, name)
);
CREATE TABLE pairs (
	seq INTEGER PRIMARY KEY,
	scope INTEGER NOT NULL,            -- its seq
	key TEXT NOT NULL,
	version INTEGER NOT NULL,
	at INTEGER NOT NULL,
	expires INTEGER NOT NULL DEFAULT 0, -- 0: never
	data BLOB NOT NULL,
	UNIQUE (scope, key)
);
CREATE INDEX pairs_expiry ON pairs (scope, expires) WHERE expires <> 0;
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
`

// In schema2, the engine lists and searches the runs that have not ended in memory. So a spawn
// updates one index less, and writes nothing to facets; the index by session also serves lists.
const schema2 = `
DROP INDEX runs_session;
DROP INDEX runs_ended;
CREATE INDEX runs_ended ON runs (session, seq, finished, notice) WHERE finished IS NOT NULL;
DELETE FROM facets WHERE status = ''; -- from now on, facets has ended runs only
`

// openFile opens the database at path, creates it if it is missing, and brings
// it to the current schema.
func openFile(path string) (c *conn, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // SQLite copies its mode to its other files
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, err
	}
	if c, err = connect(path, "rw"); err != nil {
		return nil, err
	}
	if err = prepareFile(c, path); err != nil {
		_ = c.close()
		return nil, err
	}

	return c, nil
}

func prepareFile(c *conn, path string) error {
	for _, pragma := range []string{"PRAGMA busy_timeout = 10000", "PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL",
		"PRAGMA journal_size_limit = 16777216", "PRAGMA trusted_schema = OFF"} {
		if err := c.script(pragma); err != nil {
			return fmt.Errorf("%s: %w", pragma, err)
		}
	}

	return migrate(c, path, migrations[:])
}

// versionOf returns how many steps a database has taken. The error matches [ErrForeign] if
// it is not ours, or was made before the first step, and [ErrNewer] if it has taken unknown
// steps.
func versionOf(c *conn, path string, known int) (int64, error) {
	version, err := c.number("PRAGMA user_version")
	if err != nil {
		return 0, err
	}
	app, err := c.number("PRAGMA application_id")
	if err != nil {
		return 0, err
	}
	tables, err := c.number("SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return 0, err
	}
	programs, err := c.number("SELECT count(*) FROM sqlite_schema WHERE type IN ('trigger', 'view') OR sql LIKE 'CREATE VIRTUAL%'")
	if err != nil {
		return 0, err
	}

	newest := int64(firstVersion + known - 1)
	switch {
	case app != applicationID && (app != 0 || version != 0 || tables != 0), programs > 0: // we have none
		return 0, fmt.Errorf("%w: %s; use another data directory", ErrForeign, filepath.Base(path))
	case version > 0 && version < firstVersion:
		return 0, fmt.Errorf("%w: %s has version %d, of a program before the first release; use another data directory", ErrForeign, filepath.Base(path), version)
	case version > newest:
		return 0, fmt.Errorf("%w: %s has version %d, this program knows up to %d; use the newer program, or another data directory",
			ErrNewer, filepath.Base(path), version, newest)
	}
	return max(0, version-firstVersion+1), nil
}

// migrate takes the missing steps, each in one transaction.
func migrate(c *conn, path string, steps []string) error {
	taken, err := versionOf(c, path, len(steps))
	if err != nil {
		return err
	}
	for i := taken; i < int64(len(steps)); i++ {
		version := firstVersion + i
		step := fmt.Sprintf("BEGIN IMMEDIATE; %s PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT", steps[i], applicationID, version)
		if err := c.script(step); err != nil {
			_ = c.script("ROLLBACK")
			return fmt.Errorf("bringing the database to version %d: %w", version, err)
		}
	}

	return nil
}
