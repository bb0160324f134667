package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/pkg/background"
)

// sweepAtOnce is how many folders are compared with records at once.
const sweepAtOnce = 1000

// errStopped: the engine is closing.
var errStopped = errors.New("closing")

// remember stores, in the transaction that removes the record of a run, that the
// folders of all its attempts go too.
func remember(w *conn, run background.Run) error {
	return w.run(`INSERT OR REPLACE INTO removals VALUES (?, ?)`, run.ID, int64(run.Attempt))
}

// removeFolders removes the folders of runs whose records are gone. That they
// are is stored later, with something else.
func (e *Engine) removeFolders(runs ...background.Run) {
	for _, run := range runs {
		if err := e.removeFoldersOf(run); err != nil {
			e.log.Warn("folder of a background run not removed; the next start tries again", "task_id", run.ID, "error", err)
			continue
		}
		e.mu.Lock()
		e.removed = append(e.removed, run.ID)
		e.mu.Unlock()
	}
}

func (e *Engine) removeFoldersOf(run background.Run) error {
	var errs []error
	for ; ; run.Attempt-- {
		errs = append(errs, os.RemoveAll(e.path(runsFolder, run.Folder())))
		if run.Attempt <= 1 {
			return errors.Join(errs...)
		}
	}
}

// forgetRemoved forgets the removals that were done.
func (e *Engine) forgetRemoved(ctx context.Context) error {
	e.mu.Lock()
	done := e.removed
	e.removed = nil
	e.mu.Unlock()

	for some := range slices.Chunk(done, pruneAtOnce) {
		err := e.write(ctx, func(w *conn) (func(), error) {
			for _, id := range some {
				if err := w.run(`DELETE FROM removals WHERE id = ?`, id); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
		if err != nil {
			e.mu.Lock()
			e.removed = append(e.removed, some...)
			e.mu.Unlock()
			return err
		}
	}
	return nil
}

// sweep looks at the folders of runs when an earlier process may have left some
// without a record. Those whose removal that process had begun are removed. All
// others are moved to the quarantine: their records are lost, and they are all
// that is left of their runs.
func (e *Engine) sweep(ctx context.Context) error {
	if err := e.finishRemovals(ctx); err != nil {
		return ignoreStopped(err)
	}
	folders, err := os.ReadDir(e.path(runsFolder)) // sorted
	if err != nil {
		return err
	}

	var moved []string
	for some := range slices.Chunk(slices.DeleteFunc(folders, isNoRun), sweepAtOnce) {
		found, err := e.moveUnknown(ctx, some)
		moved = append(moved, found...)
		if err != nil {
			e.reportMoved(moved)
			return ignoreStopped(err)
		}
		runtime.Gosched()
	}
	e.reportMoved(moved)
	return nil
}

func ignoreStopped(err error) error {
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
}

func (e *Engine) stopped() bool {
	select {
	case <-e.closing:
		return true
	default:
		return false
	}
}

// isNoRun reports whether something in the folder of runs is not ours.
func isNoRun(f os.DirEntry) bool { return !f.IsDir() || checkID(idOfFolder(f.Name())) != nil }

func idOfFolder(name string) string {
	id, _, _ := strings.Cut(name, ".")
	return id
}

// finishRemovals removes the folders that an earlier process was about to.
func (e *Engine) finishRemovals(ctx context.Context) error {
	var left []background.Run
	err := e.read(ctx, func(c *conn) error {
		return c.query(func(found []driver.Value) error {
			id, _ := found[0].(string)
			attempt, _ := found[1].(int64)
			if checkID(id) == nil && attempt <= maxAttempt {
				left = append(left, background.Run{ID: id, Attempt: int(attempt)})
			}
			return nil
		}, `SELECT id, attempt FROM removals WHERE id NOT IN (SELECT id FROM runs)`) // one may have come again
	})
	if err != nil {
		return err
	}
	for _, run := range left {
		if e.stopped() {
			return errStopped
		}
		e.removeFolders(run)
	}
	return nil
}

// moveUnknown moves those of the folders that have no record, and returns their
// names. They were listed before the records are read, and a record is made
// before its folder. Folders of records in quarantine are moved by who put them
// there.
func (e *Engine) moveUnknown(ctx context.Context, folders []os.DirEntry) (moved []string, err error) {
	if e.stopped() {
		return nil, errStopped
	}
	first, last := idOfFolder(folders[0].Name()), idOfFolder(folders[0].Name())
	for _, f := range folders { // the order of names is not that of ids: "." comes after "-"
		first, last = min(first, idOfFolder(f.Name())), max(last, idOfFolder(f.Name()))
	}

	known := make(map[string]bool)
	err = e.read(ctx, func(c *conn) error {
		return c.query(func(found []driver.Value) error {
			id, _ := found[0].(string)
			known[id] = true
			return nil
		}, selectKnown, first, last)
	})
	if err != nil {
		return nil, err
	}

	for _, f := range folders {
		if known[idOfFolder(f.Name())] {
			continue
		}
		if _, err := e.moveAside(e.path(runsFolder, f.Name()), f.Name()); err != nil {
			return moved, err
		}
		moved = append(moved, f.Name())
	}
	return moved, nil
}

const selectKnown = `SELECT id FROM runs WHERE id BETWEEN ?1 AND ?2 UNION ALL SELECT id FROM quarantine WHERE id BETWEEN ?1 AND ?2
	UNION ALL SELECT id FROM removals WHERE id BETWEEN ?1 AND ?2`

func (e *Engine) reportMoved(names []string) {
	if len(names) == 0 {
		return
	}
	e.report(Problem{
		Kind: ProblemFolders, Moved: quarantineFolder,
		Reason: fmt.Sprintf("%d folders of runs have no record, such as %s: the records are lost", len(names), names[0]),
	})
}
