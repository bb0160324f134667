package sqlite

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
)

// markName is the name of the mark's file, next to the database.
const markName = "state.mark"

// A mark identifies the database in use and counts its transactions. The
// database has a copy of it in its table meta. The file is written after each
// transaction is durable and before its callers get their answers, so it is
// never ahead of an intact database: a database with fewer transactions than
// its mark has lost some. A copy of a database, such as a backup, has no
// mark.
type mark struct {
	store   int64 // random number of the database; 0: unknown
	commits int64
}

const markFormat = "%016x %019d\n"

// readMark reads the mark of an earlier process. It is zero if the file is
// missing or unreadable: a power failure may have truncated it.
func readMark(path string) (m mark, err error) {
	text, err := os.ReadFile(path)
	if missingFile(err) {
		return mark{}, nil
	}
	if err != nil {
		return mark{}, err
	}

	if n, _ := fmt.Sscanf(string(text), "%x %d\n", &m.store, &m.commits); n != 2 {
		return mark{}, nil
	}
	return m, nil
}

// A markFile is the mark of the database in use. It belongs to the writing
// goroutine.
type markFile struct {
	mark
	f   *os.File
	buf []byte
}

// newMarkFile replaces the mark of an earlier process.
func newMarkFile(path string, m mark) (*markFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}

	k := &markFile{mark: m, f: f}
	if err = k.write(); err == nil {
		err = f.Truncate(int64(len(k.buf)))
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return k, nil
}

// write replaces the mark. It is one write of a few bytes within a block:
// after a crash the file has either the old or the new one.
func (k *markFile) write() error {
	k.buf = fmt.Appendf(k.buf[:0], markFormat, k.store, k.commits)
	_, err := k.f.WriteAt(k.buf, 0)
	return err
}

const (
	metaStore   = "store"
	metaCommits = "commits"
)

// markOf returns the mark in a database, or zero.
func markOf(c *conn) (m mark, err error) {
	const sql = `SELECT value FROM meta WHERE name = ?`
	if m.store, err = c.number(sql, metaStore); err == nil {
		m.commits, err = c.number(sql, metaCommits)
	}
	return m, err
}

// put writes the mark into a database. If the mark has no number yet, put chooses one.
func (m *mark) put(c *conn) error {
	if m.store == 0 {
		m.store = 1 + rand.Int64N(1<<62)
	}
	return c.run(`INSERT OR REPLACE INTO meta VALUES (?, ?), (?, ?)`, metaCommits, m.commits, metaStore, m.store)
}
