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

const (
	runsFolder = "runs"
	logsAtOnce = 64 // logs that one round of making room looks at
)

// logs are the logs of all runs, within their quota.
type logs struct {
	dir      string // has the folders of runs
	quota    int64
	used     atomic.Int64 // bytes on disk
	evicting sync.Mutex
	db       *database
	problems *problems
}

func (g *logs) folder(run engine.Run) string { return filepath.Join(g.dir, run.Folder()) }

// attempts calls do for the folder of each attempt of a run.
func (g *logs) attempts(run engine.Run, do func(folder string)) {
	for ; ; run.Attempt-- {
		do(g.folder(run))
		if run.Attempt <= 1 {
			return
		}
	}
}

// size returns how many bytes the logs of all attempts of a run take.
func (g *logs) size(run engine.Run) (n int64) {
	g.attempts(run, func(folder string) { n += logSize(folder) })
	return n
}

func (g *logs) create(run engine.Run) *logFile { return newLog(g.folder(run), run.OutputCap) }

func (g *logs) find(run engine.Run) (*logFile, error) { return findLog(g.folder(run), run.OutputCap) }

// append appends to a log if there is room.
func (g *logs) append(ctx context.Context, l *logFile, offset int64, p []byte) error {
	n := int64(len(p))
	if g.used.Add(n) > g.quota {
		err := g.makeRoom(ctx)
		if err == nil && g.used.Load() > g.quota {
			err = fmt.Errorf("%w: %d bytes", engine.ErrQuota, g.quota)
		}
		if err != nil {
			g.used.Add(-n)
			return err
		}
	}

	before := l.size()
	err := l.append(offset, p)
	g.used.Add(l.size() - before - n)
	return err
}

// makeRoom removes logs of terminal runs until a twentieth of the quota is
// free, or none is left.
func (g *logs) makeRoom(ctx context.Context) error {
	g.evicting.Lock()
	defer g.evicting.Unlock()

	for g.used.Load() > g.quota {
		freed, err := g.evict(ctx, g.used.Load()-g.quota+g.quota/20)
		if err != nil || freed == 0 {
			return err
		}
	}
	return nil
}

const selectOldestLogs = `SELECT seq, id, record, logged FROM runs INDEXED BY runs_logged WHERE logged > 0 ORDER BY finished, seq LIMIT ?`

// evict removes the logs of the runs that ended first, at most want bytes and
// one log more, and returns how many bytes it removed. Files go before the
// record says so: a crash in between leaves none that nobody knows of.
func (g *logs) evict(ctx context.Context, want int64) (freed int64, err error) {
	var oldest []row
	err = g.db.read(ctx, func(c *conn) error {
		return c.query(func(found []driver.Value) error {
			if want <= 0 {
				return nil
			}
			want -= found[3].(int64)
			id, _ := found[1].(string)
			r, err := decode(found[0].(int64), id, found[2])
			if err != nil {
				r.Run = engine.Run{ID: id}
			}
			oldest = append(oldest, r)
			return nil
		}, selectOldestLogs, int64(logsAtOnce))
	})
	if err != nil || len(oldest) == 0 {
		return 0, err
	}

	for _, r := range oldest {
		g.attempts(r.Run, removeLog)
	}
	err = g.db.write(ctx, func(w *conn) (func(), error) {
		freed = 0
		for _, r := range oldest { // one may have been removed in the meantime, and its number given again
			n, err := w.number(`SELECT logged FROM runs WHERE seq = ? AND id = ?`, r.seq, r.ID)
			if err == nil && n > 0 {
				err = w.run(`UPDATE runs SET logged = 0 WHERE seq = ?`, r.seq)
			}
			if err != nil {
				return nil, err
			}
			freed += n
		}
		return func() { g.used.Add(-freed) }, nil
	})

	return freed, err
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

// tail reads from the log of a terminal run. All of a log that was removed
// counts as dropped.
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

// open opens output.log of a terminal run, or makes one in memory if there is no
// whole file.
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

// memory is an artifact that is not in a file.
type memory struct{ *bytes.Reader }

func (memory) Close() error { return nil }

// ended returns the log of a terminal run: output.log, or what is left of one
// that could not be written. Both are nil if the log was removed.
func (g *logs) ended(r row) (f *os.File, left *logFile) {
	dir := g.folder(r.Run)
	if r.Log.Whole {
		return g.whole(r, dir), nil
	}
	if left, err := g.find(r.Run); err == nil && left.end > 0 {
		return nil, left
	}
	return nil, nil
}

// whole opens output.log of a terminal run if it is what the record says. One
// that is not is set aside. That it is missing is no damage: it was removed to
// make room, or its run was.
func (g *logs) whole(r row, dir string) *os.File {
	path := filepath.Join(dir, engine.OutputLog)
	f, err := openSized(path, r.Log.size())
	if err == nil {
		return f
	}
	// The process may have died before it put the file in its place.
	if f, newErr := openSized(filepath.Join(dir, outputNew), r.Log.size()); newErr == nil {
		_ = f.Close()
		_ = publish(dir)
	}
	// Another call may have put it in its place, or removed it, in the meantime.
	if f, err = openSized(path, r.Log.size()); err == nil {
		return f
	}
	if missingFile(err) {
		return nil
	}

	p := Problem{Kind: ProblemLog, ID: r.ID, Reason: err.Error()}
	if p.Moved, err = g.problems.moveAside(path, r.Folder()+"."+engine.OutputLog); err != nil {
		p.Reason += "; not moved: " + err.Error()
	}
	g.problems.report(p)
	return nil
}

// openSized opens a file that has to have that many bytes.
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
