package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

const runsFolder = "runs"

// logs are the logs of all runs, within their quota.
type logs struct {
	dir      string // parent of the runs' folders
	quota    int64
	used     atomic.Int64 // size of all logs on disk, in bytes
	evicting sync.Mutex
	db       *database
	problems *problems
}

func (g *logs) folder(run engine.Run) string { return filepath.Join(g.dir, run.Folder()) }

// attempts calls do with the folder of each attempt of a run.
func (g *logs) attempts(run engine.Run, do func(folder string)) {
	for ; ; run.Attempt-- {
		do(g.folder(run))
		if run.Attempt <= 1 {
			return
		}
	}
}

// size returns the total size of the logs of all attempts of a run, in bytes.
func (g *logs) size(run engine.Run) (n int64) {
	g.attempts(run, func(folder string) { n += logSize(folder) })
	return n
}

func (g *logs) create(run engine.Run) *logFile { return newLog(g.folder(run), run.OutputCap) }

func (g *logs) find(run engine.Run) (*logFile, error) { return findLog(g.folder(run), run.OutputCap) }

// append appends to a log if there is space.
func (g *logs) append(ctx context.Context, l *logFile, offset int64, p []byte) error {
	n := int64(len(p))
	if g.used.Add(n) > g.quota {
		if err := g.makeRoom(ctx); err != nil {
			g.used.Add(-n)
			return err
		}
	}

	before := l.size()
	err := l.append(offset, p)
	g.used.Add(l.size() - before - n)
	return err
}

const selectOldestLogs = `SELECT ` + runColumns + ` FROM runs INDEXED BY runs_logged WHERE logged > 0 ORDER BY finished, seq LIMIT 64`

// makeRoom removes the logs of the runs that ended first until a twentieth of the
// quota is free.
func (g *logs) makeRoom(ctx context.Context) error {
	g.evicting.Lock()
	defer g.evicting.Unlock()

	for g.used.Load() > g.quota {
		some, err := g.evict(ctx, g.used.Load()-g.quota+g.quota/20)
		if err == nil && !some {
			err = fmt.Errorf("%w: %d bytes", engine.ErrQuota, g.quota)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// evict removes logs of the runs that ended first, until want bytes are free or
// it has removed those of 64 runs. It reports whether there were any. Files are
// removed before their records are updated: a crash in between leaves no files
// without an owner.
func (g *logs) evict(ctx context.Context, want int64) (some bool, err error) {
	oldest, err := readAll(ctx, g.db, func(found []driver.Value) (row, error) {
		r, _ := decode(found) // a damaged record has a log too
		return r, nil
	}, selectOldestLogs)
	for i, r := range oldest {
		if want -= r.logged; want <= 0 {
			oldest = oldest[:i+1]
			break
		}
	}
	if err != nil || len(oldest) == 0 {
		return false, err
	}

	for _, r := range oldest {
		g.attempts(r.Run, func(folder string) { removeLog(folder) })
	}
	return true, g.db.write(ctx, func(w *conn) error {
		for _, r := range oldest { // one may have been removed since, and its seq reused
			changed, _, err := w.exec(`UPDATE runs SET logged = 0 WHERE seq = ? AND id = ? AND logged > 0`, r.seq, r.ID)
			if err != nil {
				return err
			}
			w.after = append(w.after, func() { g.used.Add(-changed * r.logged) })
		}
		return nil
	})
}

// tail reads from the log of a terminal run. A removed log counts as dropped
// entirely.
func (g *logs) tail(r row, offset int64, max int) (engine.Chunk, error) {
	f, left := g.ended(r)
	if left != nil {
		return left.read(offset, max)
	}
	if f == nil {
		return extent{Tail: r.Log.End, End: r.Log.End}.read(nil, r.Log.End, max)
	}
	defer func() { _ = f.Close() }()
	return r.Log.read(f, offset, max)
}

// open opens the output.log of a terminal run, or builds it in memory if there
// is no complete file.
func (g *logs) open(r row) engine.Artifact {
	f, left := g.ended(r)
	switch {
	case f != nil:
		return f
	case left != nil:
		if kept, err := left.kept(); err == nil {
			return inMemory(kept.Output().String())
		}
	}
	return inMemory(marker(r.Log.End))
}

func inMemory(text string) engine.Artifact { return memory{bytes.NewReader([]byte(text))} }

type memory struct{ *bytes.Reader }

func (memory) Close() error { return nil }

// ended returns the log of a terminal run: output.log, or the remains of a log
// that could not be written. Both are nil if the log was removed or is damaged.
func (g *logs) ended(r row) (f *os.File, left *logFile) {
	f, err := openSized(filepath.Join(g.folder(r.Run), engine.OutputLog), r.Log.size())
	if err == nil && r.Log.Whole {
		return f, nil
	}
	if err == nil {
		_ = f.Close()
	}

	left, finding := g.find(r.Run)
	if finding == nil && left.end > 0 && (left.end == r.Log.End || !r.Log.Whole) {
		return nil, left
	}
	if r.Log.Whole && !missingFile(err) {
		g.problems.report(kindLog, r.ID, err)
	}
	return nil, nil
}

// openSized opens a file, which must be exactly size bytes long.
func openSized(path string, size int64) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is not a file", filepath.Base(path))
	case info.Size() != size:
		err = fmt.Errorf("%s has %d bytes, its record says %d", filepath.Base(path), info.Size(), size)
	default:
		return f, nil
	}
	_ = f.Close()
	return nil, err
}
