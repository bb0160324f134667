package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

const storeBeatsEvery = 10 * time.Second

// A keeper does the background work: it sets aside folders without a record,
// stores beats, and checks whether the database is still there.
type keeper struct {
	engine  *Engine
	closing chan struct{}
	done    chan struct{}
	swept   atomic.Bool // folders were checked
}

func (k *keeper) close() {
	close(k.closing)
	<-k.done
}

func (k *keeper) run() {
	defer close(k.done)
	ctx := context.Background()
	if err := k.sweep(ctx); err != nil {
		k.engine.log.Warn("folders without a record not set aside; the next start tries again", "error", err)
	}
	k.swept.Store(true)

	tick := time.NewTicker(storeBeatsEvery)
	defer tick.Stop()
	for open := true; open; {
		select {
		case <-tick.C:
		case <-k.closing:
			open = false
		}
		if k.engine.db.look() != nil {
			continue // it was reported
		}
		if err := k.storeBeats(ctx); err != nil {
			k.engine.log.Warn("heartbeats not stored; trying again", "error", err)
		}
	}
}

// storeBeats stores what running runs said of themselves since the last time,
// except of those that are being changed.
func (k *keeper) storeBeats(ctx context.Context) error {
	g := k.engine.active
	g.mu.Lock()
	var held []*active
	var rows []row
	for _, a := range g.holders {
		if a.changed && a.mu.TryLock() {
			defer a.mu.Unlock()
			a.changed = false
			held = append(held, a)
			rows = append(rows, row{seq: a.seq, stored: stored{Run: a.run}})
		}
	}
	g.mu.Unlock()
	if len(rows) == 0 {
		return nil
	}

	err := k.engine.db.write(ctx, func(w *conn) error {
		for _, r := range rows {
			if err := r.update(w); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, a := range held {
			a.changed = true
		}
	}

	return err
}

// sweep moves the folders that have no record to the quarantine: their records
// are lost, and they are all that is left of their runs.
func (k *keeper) sweep(ctx context.Context) error {
	e := k.engine
	folders, err := os.ReadDir(e.logs.dir) // before the records: a record is made before its folder
	if err != nil || len(folders) == 0 {
		return err
	}

	known := make(map[string]bool)
	_, err = readAll(ctx, e.db, func(found []driver.Value) (bool, error) {
		id, _ := found[0].(string)
		known[id] = true
		return true, nil
	}, `SELECT id FROM runs`)

	moved, example := 0, ""
	for _, f := range folders {
		id, _, _ := strings.Cut(f.Name(), ".")
		if err != nil || known[id] || !f.IsDir() || checkID(id) != nil { // the last two are not ours
			continue
		}
		err = e.problems.quarantine(filepath.Join(e.logs.dir, f.Name()))
		if missingFile(err) { // its run was removed in the meantime
			err = nil
		} else if err == nil {
			moved, example = moved+1, f.Name()
		}
	}
	if moved > 0 {
		e.problems.report(Problem{
			Kind: ProblemFolders, Moved: quarantineFolder,
			Reason: fmt.Sprintf("%d folders of runs have no record, such as %s: the records are lost", moved, example),
		})
	}

	return err
}

// quarantine moves a folder to the quarantine. If its name is taken there, the
// time is added.
func (p *problems) quarantine(folder string) error {
	to := filepath.Join(p.dir, quarantineFolder)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	to = filepath.Join(to, filepath.Base(folder))
	if _, err := os.Lstat(to); err == nil {
		to += "." + timestamp()
	}
	if err := os.Rename(folder, to); err != nil {
		return err
	}

	p.aside.Add(1)
	return nil
}
