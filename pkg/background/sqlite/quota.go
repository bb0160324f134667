package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"

	"github.com/toolhost/toolhost/pkg/background"
)

// evictAtOnce is how many logs one round of making room looks at.
const evictAtOnce = 64

// reserve takes room for n bytes of a log. If there is none, the logs of runs
// that ended first go. The caller gives back what it does not use.
func (e *Engine) reserve(ctx context.Context, n int64) error {
	if e.used.Add(n) <= e.quota {
		return nil
	}
	err := e.makeRoom(ctx)
	if err == nil && e.used.Load() > e.quota {
		err = fmt.Errorf("%w: %d bytes", background.ErrQuota, e.quota)
	}
	if err != nil {
		e.used.Add(-n)
	}
	return err
}

// makeRoom removes logs of terminal runs until a twentieth of the quota is
// free, or none is left.
func (e *Engine) makeRoom(ctx context.Context) error {
	e.evicting.Lock()
	defer e.evicting.Unlock()
	for e.used.Load() > e.quota {
		freed, err := e.evict(ctx, e.used.Load()-e.quota+e.quota/20)
		if err != nil || freed == 0 {
			return err
		}
	}
	return nil
}

// evict removes the logs of the runs that ended first, at most want bytes and
// one log more, and returns how many bytes it removed. Files go before the
// record says so: a crash in between leaves none that nobody knows of.
func (e *Engine) evict(ctx context.Context, want int64) (freed int64, err error) {
	victims, err := e.oldestLogs(ctx, want)
	if err != nil || len(victims) == 0 {
		return 0, err
	}
	for _, r := range victims {
		for run := r.Run; ; run.Attempt-- {
			removeLog(e.path(runsFolder, run.Folder()))
			if run.Attempt <= 1 {
				break
			}
		}
	}
	err = e.write(ctx, func(w *conn) (func(), error) {
		freed = 0
		for _, v := range victims {
			n, err := forgetLog(w, victim{v.seq, v.ID})
			if err != nil {
				return nil, err
			}
			freed += n
		}
		return func() { e.used.Add(-freed) }, nil
	})
	return freed, err
}

const selectOldestLogs = `SELECT seq, id, record, logged FROM runs INDEXED BY runs_logged WHERE logged > 0 ORDER BY finished, seq LIMIT ?`

// oldestLogs returns the runs that ended first and have a log.
func (e *Engine) oldestLogs(ctx context.Context, want int64) (victims []row, err error) {
	err = e.read(ctx, func(c *conn) error {
		return c.query(func(found []driver.Value) error {
			if want <= 0 {
				return nil
			}
			want -= found[3].(int64)
			id, _ := found[1].(string)
			r, err := decode(found[0].(int64), id, found[2])
			if err != nil {
				r = row{seq: found[0].(int64), stored: stored{Run: background.Run{ID: id}}}
			}
			victims = append(victims, r)
			return nil
		}, selectOldestLogs, int64(evictAtOnce))
	})
	return victims, err
}

// forgetLog records that the log of a run takes no room, and returns how many
// bytes it took. That its files are missing says the rest.
func forgetLog(w *conn, v victim) (int64, error) {
	logged, err := w.number(`SELECT logged FROM runs WHERE seq = ? AND id = ?`, v.seq, v.id)
	if err != nil || logged == 0 {
		return 0, err
	}
	return logged, w.run(`UPDATE runs SET logged = 0 WHERE seq = ?`, v.seq)
}

// removeLog removes the log in a folder.
func removeLog(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if isLog(entry.Name()) {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
}
