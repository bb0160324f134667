package sqlite

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
)

// markName is the name of the file beside the database that says how far the
// database was.
const markName = "state.mark"

// A mark says which database was in use and how many transactions it had. The
// database has the same in its table meta. The file is written after each
// transaction is durable and before anybody is told, so that it is never ahead
// of a database that is whole: one that has fewer transactions than its mark
// has lost some.
type mark struct {
	store   int64 // a random number, given to a database when it is made
	commits int64
}

const markFormat = "%016x %019d\n"

// readMark reads the mark an earlier process left. known is false if there is
// none, or if it cannot be read: it may have been cut off by a loss of power.
func readMark(path string) (m mark, known bool, err error) {
	text, err := os.ReadFile(path)
	if missingFile(err) {
		return mark{}, false, nil
	}
	if err != nil {
		return mark{}, false, err
	}

	n, err := fmt.Sscanf(string(text), "%x %d\n", &m.store, &m.commits)
	return m, err == nil && n == 2, nil
}

// A markFile is the mark of the database in use. The goroutine that writes has it.
type markFile struct {
	mark
	f     *os.File
	buf   []byte
	dirty atomic.Bool // written since the last sync
}

// newMarkFile replaces the mark of an earlier process.
func newMarkFile(path string, m mark) (*markFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}

	k := &markFile{mark: m, f: f}
	err = k.f.Truncate(int64(len(k.text())))
	if err == nil {
		err = k.write()
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}

	return k, nil
}

func (k *markFile) text() []byte {
	k.buf = fmt.Appendf(k.buf[:0], markFormat, k.store, k.commits)
	return k.buf
}

// write puts the mark in the place of the one before. It is one write of a few
// bytes within a block: a crash leaves either.
func (k *markFile) write() error {
	k.dirty.Store(true)
	_, err := k.f.WriteAt(k.text(), 0)
	return err
}

// sync makes the mark durable, if it has changed. Any goroutine may call it.
func (k *markFile) sync() error {
	if !k.dirty.Swap(false) {
		return nil
	}
	return k.f.Sync()
}

const (
	metaStore   = "store"
	metaCommits = "commits"
)

// markOf returns the mark in a database. One that has none yet is given one.
func markOf(c *conn) (m mark, err error) {
	if m.store, err = c.number(selectMeta, metaStore); err != nil {
		return m, err
	}
	if m.store != 0 {
		m.commits, err = c.number(selectMeta, metaCommits)
		return m, err
	}

	m.store = 1 + rand.Int64N(1<<62)
	for name, value := range map[string]int64{metaCommits: 0, metaStore: m.store} {
		if err := c.run(`INSERT OR REPLACE INTO meta VALUES (?, ?)`, name, value); err != nil {
			return m, err
		}
	}

	return m, nil
}

const selectMeta = `SELECT value FROM meta WHERE name = ?`

// stamp counts the transaction that is about to be committed.
func (k *markFile) stamp(w *conn) error {
	return w.run(`UPDATE meta SET value = ? WHERE name = 'commits'`, k.commits+1)
}
