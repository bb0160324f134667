package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
)

const (
	storeBeatsEvery = 10 * time.Second
	beatsAtOnce     = 64
	sweepAtOnce     = 1000
)

// keep is the goroutine that looks after the rest: what an earlier process
// left behind, and beats that are not stored.
func (e *Engine) keep() {
	defer e.calls.Done()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := e.sweep(ctx); err != nil {
		e.log.Warn("leftovers not removed; the next start tries again", "error", err)
	}
	tick := time.NewTicker(storeBeatsEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.storeBeats(ctx)
		case <-e.closing:
			e.storeBeats(ctx)
			return
		}
	}
}

// storeBeats stores what running runs said of themselves since the last time.
func (e *Engine) storeBeats(ctx context.Context) {
	for some := range slices.Chunk(e.takeDirty(), beatsAtOnce) {
		err := e.write(ctx, func(w *conn) (func(), error) {
			for _, id := range some {
				if err := e.storeBeat(w, id); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
		if err != nil {
			e.log.Warn("heartbeats not stored", "error", err)
			e.redirty(some)
		}
	}
}

func (e *Engine) storeBeat(w *conn, id string) error {
	r, err := load(w, id)
	if err != nil || r.Status != background.StatusRunning {
		if isSQL(err) {
			return err
		}
		return nil
	}
	e.refresh(&r.Run)
	return r.update(w)
}

// takeDirty returns the runs whose Beat is not stored.
func (e *Engine) takeDirty() (ids []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, v := range e.live {
		if v.dirty {
			v.dirty = false
			ids = append(ids, id)
		}
	}
	return ids
}

func (e *Engine) redirty(ids []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		if v := e.live[id]; v != nil {
			v.dirty = true
		}
	}
}

// errStopped: the engine is closing.
var errStopped = errors.New("closing")

// sweep removes folders that have no record: their runs were pruned when the
// process died.
func (e *Engine) sweep(ctx context.Context) error {
	folders, err := os.ReadDir(e.path(runsFolder)) // sorted
	if err != nil || len(folders) == 0 {
		return err
	}
	var before int64
	err = e.read(ctx, func(c *conn) (err error) {
		before, err = c.number(`SELECT value FROM meta WHERE name = 'kept_before'`)
		return err
	})
	if err != nil {
		return err
	}
	for some := range slices.Chunk(folders, sweepAtOnce) {
		if err := e.sweepFolders(ctx, some, time.Unix(0, before)); err != nil {
			return ignoreStopped(err)
		}
		runtime.Gosched()
	}
	return nil
}

func ignoreStopped(err error) error {
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
}

const (
	selectLogged = `SELECT sum(logged) FROM runs INDEXED BY runs_logged WHERE logged > 0`
	selectActive = `SELECT seq, id, record FROM runs INDEXED BY runs_active WHERE finished IS NULL`
)

// countLogs adds what the logs of runs of earlier processes take. It is done
// before anybody can change that: a log that came or went meanwhile would be
// counted twice, or not at all. What it costs are an index and the folders of the
// runs that had not ended.
func (e *Engine) countLogs(c *conn) error {
	ended, err := c.number(selectLogged)
	if err != nil {
		return err
	}
	e.used.Add(ended)
	return c.query(func(found []driver.Value) error {
		id, _ := found[1].(string)
		r, err := decode(found[0].(int64), id, found[2])
		if err != nil { // until it is met, see quarantine
			for _, name := range e.foldersOf(id) {
				e.used.Add(logSize(e.path(runsFolder, name)))
			}
			return nil
		}
		for ; r.Attempt > 0; r.Attempt-- {
			e.used.Add(logSize(e.path(runsFolder, r.Folder())))
		}
		return nil
	}, selectActive)
}

func (e *Engine) stopped() bool {
	select {
	case <-e.closing:
		return true
	default:
		return false
	}
}

// sweepFolders removes those of the folders that have no record. They were
// listed before the records are read, and a record is made before its folder.
// Folders of records in quarantine are moved by who put them there, and those
// older than before are of a damaged database: they stay.
func (e *Engine) sweepFolders(ctx context.Context, folders []os.DirEntry, before time.Time) error {
	if e.stopped() {
		return errStopped
	}
	known := make(map[string]bool)
	idOf := func(f os.DirEntry) string { id, _, _ := strings.Cut(f.Name(), "."); return id }
	first, last := idOf(folders[0]), idOf(folders[0])
	for _, f := range folders { // the order of names is not that of ids: "." comes after "-"
		first, last = min(first, idOf(f)), max(last, idOf(f))
	}
	err := e.read(ctx, func(c *conn) error {
		return c.query(func(found []driver.Value) error {
			id, _ := found[0].(string)
			known[id] = true
			return nil
		}, `SELECT id FROM runs WHERE id BETWEEN ?1 AND ?2 UNION ALL SELECT id FROM quarantine WHERE id BETWEEN ?1 AND ?2`, first, last)
	})
	if err != nil {
		return err
	}
	for _, f := range folders {
		if known[idOf(f)] {
			continue
		}
		if info, err := f.Info(); err != nil || info.ModTime().Before(before) {
			continue
		}
		if err := os.RemoveAll(e.path(runsFolder, f.Name())); err != nil {
			return err
		}
	}
	return nil
}
