package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A check returns the first damage that it finds in a database, or "".
type check func(ctx context.Context, c *conn) (damage string, err error)

// quickCheck reads every page. See https://www.sqlite.org/pragma.html#pragma_quick_check.
func quickCheck(ctx context.Context, c *conn) (string, error) {
	return pragma(ctx, c, "quick_check(1)")
}

// integrityCheck also compares the indexes with the tables.
func integrityCheck(ctx context.Context, c *conn) (string, error) {
	return pragma(ctx, c, "integrity_check(1)")
}

// checkRecords checks everything but large values. Those take nearly all of the space, and
// each is checked when it is read.
func checkRecords(ctx context.Context, c *conn) (damage string, err error) {
	var tables []string
	err = c.query(func(row []driver.Value) error {
		tables = append(tables, fmt.Sprint(row[0]))
		return nil
	}, `SELECT name FROM sqlite_schema WHERE type = 'table'
		AND name NOT IN ('args', 'results', 'contents', 'checkpoints', 'states', 'calls', 'pairs', 'schedule_args')`)
	for _, table := range tables {
		if err == nil && damage == "" {
			damage, err = pragma(ctx, c, `quick_check("`+strings.ReplaceAll(table, `"`, `""`)+`")`)
		}
	}
	return damage, err
}

// pragma runs one of SQLite's checks.
func pragma(ctx context.Context, c *conn, name string) (damage string, err error) {
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, "PRAGMA "+name, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()

	row := make([]driver.Value, len(rows.Columns()))
	if err := rows.Next(row); err == io.EOF {
		return "", nil
	} else if err != nil {
		return "", err
	}
	if damage = strings.Join(strings.Fields(fmt.Sprint(row[0])), " "); damage == "ok" {
		return "", nil
	}
	return damage, nil
}

// inspectFile checks a database file, and returns its mark. It changes nothing.
func inspectFile(path string, look check) (found mark, err error) {
	c, err := connect(path, "ro")
	if err != nil {
		return found, err
	}
	defer func() { _ = c.close() }()

	damage := ""
	version, err := versionOf(c, path, len(migrations))
	if err == nil && version > 0 {
		damage, err = look(context.Background(), c)
	}
	if damage != "" {
		return found, fmt.Errorf("%w: %s: %s", ErrDamaged, path, damage)
	}
	if err == nil && version > 0 {
		found, err = markOf(c)
	}
	return found, damaged(path, err)
}

// damaged adds the file name to an error that reports damage.
func damaged(path string, err error) error {
	if damagedFile(err) && !errors.Is(err, ErrDamaged) {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	}
	return err
}

// checkWhole checks the whole database while it is in use, until ctx ends. If it finds
// damage, the engine stops storing: a write to a damaged file may be lost, or damage
// more of it.
func (db *database) checkWhole(ctx context.Context) {
	defer close(db.checked)
	damage := ""
	c, err := connect(db.path(""), "ro")
	if err == nil {
		damage, err = quickCheck(ctx, c)
		err = errors.Join(err, c.close())
	}
	if damagedFile(err) {
		damage = err.Error()
	}

	switch {
	case damage != "":
		_ = db.fail(fmt.Errorf("%w: %s: %s; nothing is stored any more: restore a backup", engine.ErrStorageLost, databaseName, damage))
	case err != nil && ctx.Err() == nil:
		db.log.Warn("the database could not be checked", "error", err)
	}
}
