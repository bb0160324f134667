package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrNewer: the database was written by a newer version of this package.
var ErrNewer = errors.New("database of a newer version")

// ErrForeign: the database file belongs to another program.
var ErrForeign = errors.New("database of another program")

// applicationID identifies our database files, see PRAGMA application_id: "tlhs".
const applicationID = 0x746c6873

// migrations are the steps from an empty database to the current schema. PRAGMA
// user_version is the number of steps taken. A released step is never changed.
var migrations = [...]string{schema1, schema2, schema3, schema4, schema5, schema6, schema7, schema8}

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
	finished INTEGER,                  -- NULL until the run is terminal
	notice INTEGER NOT NULL DEFAULT 0, -- 1: pending
	logged INTEGER NOT NULL DEFAULT 0, -- bytes of its logs on disk, once it is terminal
	record BLOB NOT NULL
);
CREATE INDEX runs_session ON runs (session);
CREATE INDEX runs_active ON runs (seq, session) WHERE finished IS NULL; -- few, and new ones come at its end
CREATE INDEX runs_key ON runs (idempotency_key, session) WHERE idempotency_key IS NOT NULL;
CREATE INDEX runs_schedule ON runs (schedule) WHERE schedule IS NOT NULL;
CREATE INDEX runs_notice ON runs (session) WHERE notice = 1;
CREATE INDEX runs_ended ON runs (session, finished DESC, seq DESC, notice) WHERE finished IS NOT NULL;
CREATE INDEX runs_logged ON runs (finished, seq, logged) WHERE logged > 0;
CREATE TABLE args (seq INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE results (seq INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE checkpoints (seq INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE schedules (
	seq INTEGER PRIMARY KEY,           -- in the order they were made
	id TEXT NOT NULL UNIQUE,
	session TEXT NOT NULL,
	enabled INTEGER NOT NULL,
	changed INTEGER NOT NULL,
	record BLOB NOT NULL
);
CREATE INDEX schedules_session ON schedules (session);
CREATE INDEX schedules_enabled ON schedules (session) WHERE enabled = 1;
CREATE TABLE quarantine (
	seq INTEGER PRIMARY KEY,
	kind TEXT NOT NULL,                -- 'run' or 'schedule'
	id TEXT,
	session TEXT,
	reason TEXT NOT NULL,
	at INTEGER NOT NULL,
	record BLOB, args BLOB, result BLOB, checkpoint BLOB
);
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
`

// Additional content of runs may be large too.
const schema2 = `
CREATE TABLE contents (seq INTEGER PRIMARY KEY, data BLOB NOT NULL);
ALTER TABLE quarantine ADD COLUMN content BLOB;
`

// The sizes of records are counted, and evictable ones are found in the order
// of their eviction: see Limit. For older records, the size of result.json is
// assumed to be that of the result.
const schema3 = `
ALTER TABLE runs ADD COLUMN size INTEGER NOT NULL DEFAULT 0;
ALTER TABLE schedules ADD COLUMN size INTEGER NOT NULL DEFAULT 0;
UPDATE runs SET size = 16384 + ifnull((SELECT length(data) FROM args a WHERE a.seq = runs.seq), 0)
	+ 2 * ifnull((SELECT length(data) FROM results s WHERE s.seq = runs.seq), 0)
	+ 2 * ifnull((SELECT length(data) FROM contents c WHERE c.seq = runs.seq), 0)
	+ ifnull((SELECT length(data) FROM checkpoints k WHERE k.seq = runs.seq), 0);
UPDATE schedules SET size = 16384 + length(record);
CREATE INDEX runs_spare ON runs (finished, seq, session, size) WHERE finished IS NOT NULL AND notice = 0;
CREATE INDEX schedules_spare ON schedules (changed, seq, session, size) WHERE enabled = 0;
`

// The arguments of a schedule may be large too, and lists do not need them. An
// older schedule has them in its record until it is stored again.
const schema4 = `
CREATE TABLE schedule_args (seq INTEGER PRIMARY KEY, data BLOB NOT NULL);
`

// The folders of runs whose records were removed, until they are removed too:
// after a crash in between, the next start removes these and no others.
const schema5 = `
CREATE TABLE removals (id TEXT PRIMARY KEY, attempt INTEGER NOT NULL) WITHOUT ROWID;
`

// The children of a run are found by its id, and notices in the order of their ends. Values are stored by scope
// and key.
const schema6 = `
ALTER TABLE runs ADD COLUMN parent TEXT;
CREATE INDEX runs_parent ON runs (parent, session) WHERE parent IS NOT NULL;
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
	data BLOB NOT NULL,
	UNIQUE (scope, key)
);
DROP INDEX runs_notice;
CREATE INDEX runs_notice ON runs (session, finished, seq) WHERE notice = 1;
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
INSERT INTO facets SELECT seq, session, ifnull(json_extract(r, '$.tool'), ''), '', '',
	iif(finished IS NULL, '', ifnull(json_extract(r, '$.status'), '')), json_extract(r, '$.error.kind'),
	ifnull(unixepoch(json_extract(r, '$.created_at')), 0) * 1000000000, unixepoch(json_extract(r, '$.started_at')) * 1000000000,
	lower(ifnull(json_extract(r, '$.tool'), '') || char(10) || ifnull(json_extract(r, '$.title'), '') || char(10) || ifnull(substr(json_extract(r, '$.error.message'), 1, 512), ''))
	FROM (SELECT seq, session, finished, CAST(record AS TEXT) AS r FROM runs) WHERE json_valid(r);
INSERT INTO meta SELECT 'undescribed', 1 WHERE EXISTS (SELECT 1 FROM facets); -- see Describe
`

// Values may expire.
const schema7 = `
ALTER TABLE pairs ADD COLUMN expires INTEGER NOT NULL DEFAULT 0; -- 0: never
CREATE INDEX pairs_expiry ON pairs (scope, expires) WHERE expires <> 0;
`

// The state of a waiting run, which may be large.
const schema8 = `
CREATE TABLE states (seq INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE calls (seq INTEGER PRIMARY KEY, data BLOB NOT NULL); -- what runs have called
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
// it is not ours, and [ErrNewer] if it has taken unknown steps.
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

	switch {
	case app != applicationID && (app != 0 || version != 0 || tables != 0), programs > 0: // we have none
		return 0, fmt.Errorf("%w: %s; use another data directory", ErrForeign, filepath.Base(path))
	case version > int64(known):
		return 0, fmt.Errorf("%w: %s has version %d, this program knows up to %d; use the newer program, or another data directory",
			ErrNewer, filepath.Base(path), version, known)
	}
	return version, nil
}

// migrate takes the missing steps, each in one transaction.
func migrate(c *conn, path string, steps []string) error {
	version, err := versionOf(c, path, len(steps))
	if err != nil {
		return err
	}
	for i := version; i < int64(len(steps)); i++ {
		step := fmt.Sprintf("BEGIN IMMEDIATE; %s PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT", steps[i], applicationID, i+1)
		if err := c.script(step); err != nil {
			_ = c.script("ROLLBACK")
			return fmt.Errorf("bringing the database to version %d: %w", i+1, err)
		}
	}

	return nil
}
