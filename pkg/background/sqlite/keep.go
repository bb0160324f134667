package sqlite

import (
	"context"
	"database/sql/driver"
	"slices"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
)

const (
	storeBeatsEvery = 10 * time.Second
	beatsAtOnce     = 64
)

// keep is the goroutine that looks after the rest: what an earlier process
// left behind, beats that are not stored, folders whose runs are gone, and
// whether the database is still there.
func (e *Engine) keep() {
	defer e.calls.Done()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := e.sweep(ctx); err != nil {
		e.log.Warn("leftovers not removed; the next start tries again", "error", err)
	}
	e.swept.Store(true)
	tick := time.NewTicker(storeBeatsEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.round(ctx)
		case <-e.closing:
			e.round(ctx)
			return
		}
	}
}

func (e *Engine) round(ctx context.Context) {
	if e.look() != nil {
		return // it was told
	}

	e.storeBeats(ctx)
	if err := e.forgetRemoved(ctx); err != nil {
		e.log.Warn("removed folders not forgotten; trying again", "error", err)
	}
	if err := e.mark.sync(); err != nil {
		e.log.Warn("mark of the database not synced; trying again", "error", err)
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
