package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

const (
	storeBeatsEvery = 10 * time.Second
	beatsAtOnce     = 64
)

// A keeper looks after the rest: what an earlier process left behind, beats that
// are not stored, folders whose runs are gone, and whether the database is still
// there.
type keeper struct {
	engine  *Engine
	closing chan struct{}
	done    chan struct{}
	swept   atomic.Bool // folders were looked at

	mu      sync.Mutex
	removed []string // runs whose folders were removed, which is not stored yet
}

// close stores what is left, and ends the keeper.
func (k *keeper) close() {
	close(k.closing)
	<-k.done
}

// run is the goroutine of the keeper.
func (k *keeper) run() {
	defer close(k.done)
	ctx := context.Background()
	if err := k.sweep(ctx); err != nil && !errors.Is(err, errStopped) {
		k.engine.log.Warn("leftovers not removed; the next start tries again", "error", err)
	}
	k.swept.Store(true)

	tick := time.NewTicker(storeBeatsEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			k.round(ctx)
		case <-k.closing:
			k.round(ctx)
			return
		}
	}
}

func (k *keeper) round(ctx context.Context) {
	e := k.engine
	if e.db.look() != nil {
		return // it was reported
	}

	if err := k.storeBeats(ctx); err != nil {
		e.log.Warn("heartbeats not stored; trying again", "error", err)
	}
	if err := k.forgetRemoved(ctx); err != nil {
		e.log.Warn("removed folders not forgotten; the next start does it", "error", err)
	}
	if err := e.db.mark.sync(); err != nil {
		e.log.Warn("mark of the database not synced; trying again", "error", err)
	}
}

// storeBeats stores what running runs said of themselves since the last time.
func (k *keeper) storeBeats(ctx context.Context) error {
	g := k.engine.active
	g.mu.Lock()
	changed := g.inOrder(func(a *active) bool { return a.changed })
	g.mu.Unlock()

	for some := range slices.Chunk(changed, beatsAtOnce) {
		if err := k.storeSome(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// storeSome stores the beats of some runs, but of those that are being changed.
func (k *keeper) storeSome(ctx context.Context, some []*active) error {
	g := k.engine.active
	var rows []row
	for _, a := range some {
		if !a.mu.TryLock() {
			continue
		}
		defer a.mu.Unlock()
		g.mu.Lock()
		if a.changed && !a.gone {
			a.changed = false
			rows = append(rows, row{seq: a.seq, stored: stored{Run: a.run}})
		}
		g.mu.Unlock()
	}

	err := k.engine.db.write(ctx, func(w *conn) (func(), error) {
		for _, r := range rows {
			if err := r.update(w); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	if err != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, r := range rows {
			g.runs[r.ID].changed = true // it is held
		}
	}

	return err
}

// removeFolders removes the folders of runs whose records are gone. That they
// are is stored later, with something else.
func (k *keeper) removeFolders(runs ...engine.Run) {
	for _, run := range runs {
		var err error
		k.engine.logs.attempts(run, func(folder string) { err = errors.Join(err, os.RemoveAll(folder)) })
		if err != nil {
			k.engine.log.Warn("folder of a background run not removed; the next start tries again", "task_id", run.ID, "error", err)
			continue
		}
		k.mu.Lock()
		k.removed = append(k.removed, run.ID)
		k.mu.Unlock()
	}
}

// forgetRemoved forgets the removals that were done.
func (k *keeper) forgetRemoved(ctx context.Context) error {
	k.mu.Lock()
	done := k.removed
	k.removed = nil
	k.mu.Unlock()

	for some := range slices.Chunk(done, pruneAtOnce) {
		err := k.engine.db.write(ctx, func(w *conn) (func(), error) {
			for _, id := range some {
				if err := w.run(`DELETE FROM removals WHERE id = ?`, id); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
		if err != nil {
			return err
		}
	}

	return nil
}

// errStopped: the engine is closing.
var errStopped = errors.New("closing")

func (k *keeper) stopped() error {
	select {
	case <-k.closing:
		return errStopped
	default:
		return nil
	}
}

const (
	selectRemovals = `SELECT id, attempt FROM removals WHERE id NOT IN (SELECT id FROM runs)` // one may have come again
	selectKnown    = `SELECT id FROM runs UNION ALL SELECT id FROM removals`
)

// sweep looks at the folders of runs when an earlier process may have left some
// without a record. Those whose removal that process had begun are removed. All
// others are moved to the quarantine: their records are damaged or lost, and they
// are all that is left of their runs.
func (k *keeper) sweep(ctx context.Context) error {
	e := k.engine
	folders, err := os.ReadDir(e.logs.dir) // before the records: a record is made before its folder
	if err != nil {
		return err
	}

	var left []engine.Run
	known := make(map[string]bool)
	err = e.db.read(ctx, func(c *conn) error {
		err := c.query(func(found []driver.Value) error {
			id, _ := found[0].(string)
			attempt, _ := found[1].(int64)
			if checkID(id) == nil && attempt <= maxAttempt {
				left = append(left, engine.Run{ID: id, Attempt: int(attempt)})
			}
			return nil
		}, selectRemovals)
		if err != nil || len(folders) == 0 {
			return err
		}
		return c.query(func(found []driver.Value) error {
			id, _ := found[0].(string)
			known[id] = true
			return k.stopped()
		}, selectKnown)
	})
	if err != nil {
		return err
	}

	for _, run := range left {
		if err := k.stopped(); err != nil {
			return err
		}
		k.removeFolders(run)
	}

	return k.moveUnknown(folders, known)
}

// moveUnknown moves the folders that have no record to the quarantine.
func (k *keeper) moveUnknown(folders []os.DirEntry, known map[string]bool) error {
	moved, example := 0, ""
	defer func() {
		if moved > 0 {
			k.engine.problems.report(Problem{
				Kind: ProblemFolders, Moved: quarantineFolder,
				Reason: fmt.Sprintf("%d folders of runs have no record, such as %s: the records are lost", moved, example),
			})
		}
	}()

	for _, f := range folders {
		id, _, _ := strings.Cut(f.Name(), ".")
		if known[id] || !f.IsDir() || checkID(id) != nil { // the last two are not ours
			continue
		}
		if err := k.stopped(); err != nil {
			return err
		}
		if _, err := k.engine.problems.moveAside(k.engine.logs.dir+"/"+f.Name(), f.Name()); err != nil {
			return err
		}
		moved, example = moved+1, f.Name()
	}

	return nil
}
