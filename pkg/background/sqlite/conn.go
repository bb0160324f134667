package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"syscall"

	modernc "modernc.org/sqlite"
)

// A conn is one connection to the database, with its prepared statements. It is
// used by one goroutine at a time. It uses the driver directly: a pool of
// database/sql would add a quarter to the time of a short query.
type conn struct {
	driver.Conn
	stmts map[string]driver.Stmt

	// For the writing connection:
	book    book
	after   []func() // called once the current transaction is stored
	changed int64    // rows changed so far
}

// connect opens an existing database file. The mode is rw or ro.
func connect(path, mode string) (*conn, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	path = filepath.ToSlash(path)
	if path[0] != '/' {
		path = "/" + path // a drive letter
	}
	connector, err := modernc.NewConnector((&url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: "_error_rc=1&mode=" + mode}).String())
	if err != nil {
		return nil, err
	}
	dc, err := connector.Connect(context.Background())
	if err != nil {
		return nil, err
	}

	return &conn{Conn: dc, stmts: make(map[string]driver.Stmt)}, nil
}

func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, c.Close())...)
}

func (c *conn) prepare(sql string) (driver.Stmt, error) {
	if s := c.stmts[sql]; s != nil {
		return s, nil
	}
	s, err := c.Prepare(sql)
	if err != nil {
		return nil, err
	}
	c.stmts[sql] = s
	return s, nil
}

func named(args []driver.Value) []driver.NamedValue {
	values := make([]driver.NamedValue, len(args))
	for i, v := range args {
		values[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return values
}

// exec runs one statement and returns the number of rows that it changed, and
// the rowid of the last row it inserted.
func (c *conn) exec(sql string, args ...driver.Value) (changed, rowid int64, err error) {
	s, err := c.prepare(sql)
	if err != nil {
		return 0, 0, err
	}
	result, err := s.(driver.StmtExecContext).ExecContext(context.Background(), named(args))
	if err != nil {
		return 0, 0, err
	}
	changed, _ = result.RowsAffected()
	rowid, _ = result.LastInsertId()
	c.changed += changed
	return changed, rowid, nil
}

// run runs one statement, ignoring its counts.
func (c *conn) run(sql string, args ...driver.Value) error {
	_, _, err := c.exec(sql, args...)
	return err
}

// script runs statements that are used only once.
func (c *conn) script(sql string) error {
	_, err := c.Conn.(driver.ExecerContext).ExecContext(context.Background(), sql, nil)
	return err
}

// query calls each with every row of a query. It reuses the slice for the next
// row. The function each must not run the same statement.
func (c *conn) query(each func(row []driver.Value) error, sql string, args ...driver.Value) (err error) {
	s, err := c.prepare(sql)
	if err != nil {
		return err
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(context.Background(), named(args))
	if err != nil {
		return err
	}
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()

	row := make([]driver.Value, len(rows.Columns()))
	for {
		if err := rows.Next(row); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := each(row); err != nil {
			return err
		}
	}
}

// one returns the first row, or nil.
func (c *conn) one(sql string, args ...driver.Value) (found []driver.Value, err error) {
	err = c.query(func(row []driver.Value) error {
		if found == nil {
			found = append(found, row...)
		}
		return nil
	}, sql, args...)
	return found, err
}

// number returns the number that a query selects, or 0.
func (c *conn) number(sql string, args ...driver.Value) (int64, error) {
	row, err := c.one(sql, args...)
	if err != nil || row == nil {
		return 0, err
	}
	switch n := row[0].(type) {
	case int64:
		return n, nil
	case nil:
		return 0, nil
	}
	return 0, fmt.Errorf("%w: %T instead of a number", errType, row[0])
}

// errType means that a column has a type that this package does not store in it.
var errType = errors.New("wrong type in the database")

// Result codes, https://www.sqlite.org/rescode.html.
const (
	codeIO         = 10
	codeCorrupt    = 11
	codeFull       = 13
	codeConstraint = 19
	codeNotADB     = 26
)

// code returns the primary result code of an SQLite error, or 0 for any other
// error.
func code(err error) int {
	if e, ok := errors.AsType[*modernc.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

// isSQL reports whether err comes from SQLite.
func isSQL(err error) bool { return code(err) != 0 }

// damagedFile reports whether err means that SQLite cannot read the database file
// as its own.
func damagedFile(err error) bool { return code(err) == codeCorrupt || code(err) == codeNotADB }

// fullDisk reports whether err means that the disk of a directory is full. SQLite reports an
// I/O error if there is no room for the files next to the database.
func fullDisk(dir string, err error) bool {
	return errors.Is(err, syscall.ENOSPC) || code(err) == codeFull || code(err) == codeIO && scarce(dir)
}
