package sqlite

import (
	"bytes"
	heaps "container/heap"
	"context"
	"database/sql/driver"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A waitList holds the waiting runs and the events that wake them. The registry's lock guards
// it. A wake is not stored: the next process finds out again that the run is due.
type waitList struct {
	times    alarms
	sweep    int                  // number of alarms at which void ones are removed
	awaited  map[string][]*active // runs that wait for the end of a run, by the id of that run
	children map[string]int       // number of waiting children of a run, by the id of that run
}

func newWaitList() waitList {
	return waitList{awaited: make(map[string][]*active), children: make(map[string]int)}
}

// An alarm is the time when a run continues. It is void once the run no longer waits for
// it.
type alarm struct {
	engine.Alarm
	run *active
}

func (a alarm) void() bool {
	return a.run.run.Status != engine.StatusWaiting || !a.run.run.WakeAt.Equal(a.Wall)
}

// tidy removes void and duplicate alarms.
func (s *waitList) tidy() {
	there := make(map[*active]bool)
	s.times = slices.DeleteFunc(s.times, func(a alarm) bool {
		again := a.void() || there[a.run]
		there[a.run] = there[a.run] || !again
		return again
	})
	heaps.Init(&s.times)
	s.sweep = 2*len(s.times) + 64
}

type alarms []alarm

func (s alarms) Len() int           { return len(s) }
func (s alarms) Less(i, j int) bool { return s[i].At.Before(s[j].At) }
func (s alarms) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *alarms) Push(a any)        { *s = append(*s, a.(alarm)) }
func (s *alarms) Pop() any {
	last := len(*s) - 1
	a := (*s)[last]
	(*s)[last] = alarm{}
	*s = (*s)[:last]
	return a
}

// addWaiting adds a waiting run without a worker. The lock must be held.
func (g *registry) addWaiting(a *active) {
	g.giveBack(a)
	a.worker, a.lease = nil, nil
	if !a.run.WakeAt.IsZero() {
		if len(g.waits.times) >= g.waits.sweep {
			g.waits.tidy()
		}
		heaps.Push(&g.waits.times, alarm{engine.NewAlarm(a.run.WakeAt), a})
	}
	for _, id := range a.run.Await {
		g.waits.awaited[id] = append(g.waits.awaited[id], a)
	}
	if a.run.Parent != "" {
		g.waits.children[a.run.Parent]++
	}
}

// removeWaiting removes a run from the waiting ones. The lock must be held.
func (g *registry) removeWaiting(a *active) {
	for _, id := range a.run.Await {
		left := slices.DeleteFunc(g.waits.awaited[id], func(b *active) bool { return b == a })
		if g.waits.awaited[id] = left; len(left) == 0 {
			delete(g.waits.awaited, id)
		}
	}
	if parent := a.run.Parent; parent != "" {
		if g.waits.children[parent]--; g.waits.children[parent] == 0 {
			delete(g.waits.children, parent)
		}
	}
}

// resume queues those runs that are waiting, and returns them. The lock must be held.
func (g *registry) resume(all ...*active) (woken []engine.Run) {
	for _, a := range all {
		if a.run.Status == engine.StatusWaiting {
			g.removeWaiting(a)
			a.run = a.run.Resumed()
			g.enqueue(a)
			woken = append(woken, a.run)
		}
	}
	return woken
}

// due reports whether a run that a waiting run waits for has ended. The lock must be held.
func (g *registry) due(a *active) bool {
	return slices.ContainsFunc(a.run.Await, func(id string) bool { return g.runs[id] == nil })
}

// wake queues a run if it is waiting.
func (st *store) wake(id string) {
	g := st.active
	g.mu.Lock()
	var woken []engine.Run
	if a := g.runs[id]; a != nil {
		woken = g.resume(a)
	}
	g.mu.Unlock()
	st.woke(woken)
}

// woke publishes that runs were queued again.
func (st *store) woke(runs []engine.Run) {
	for _, run := range runs {
		st.feed.Publish(engine.RunEvent(engine.EventQueued, run))
	}
}

// Wake implements [engine.Worker]. It writes nothing.
func (w *worker) Wake(_ context.Context, now time.Time, max int) (woken int, next time.Time, err error) {
	g := w.engine.active
	g.mu.Lock()
	err = w.ended()
	var runs []engine.Run
	for times := &g.waits.times; err == nil && len(*times) > 0; heaps.Pop(times) {
		first := (*times)[0]
		if first.void() {
			continue
		}
		if len(runs) >= max || !first.Due(now) {
			next = first.At
			break
		}
		runs = append(runs, g.resume(first.run)...)
	}
	g.mu.Unlock()

	w.engine.woke(runs)
	return len(runs), next, err
}

// restoreWaits wakes those runs left waiting by an earlier process whose event
// has already happened.
func (e *Engine) restoreWaits(ctx context.Context) error {
	type mailbox struct {
		run     string
		version int64
	}
	found, err := readAll(ctx, e.db, func(found []driver.Value) (m mailbox, err error) {
		name, _ := found[0].(string)
		m.run = strings.TrimPrefix(name, "run:")
		m.version, _ = found[1].(int64)
		return m, nil
	}, `SELECT name, version FROM scopes WHERE name LIKE 'run:%'`)

	g := e.active
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range found {
		if a := g.runs[m.run]; a != nil && a.run.Status == engine.StatusWaiting && m.version > a.run.Mail {
			g.resume(a)
		}
	}
	for _, a := range g.runs {
		if a.run.Status == engine.StatusWaiting && g.due(a) {
			g.resume(a)
		}
	}
	return err
}

// State implements [engine.Lease].
func (l *lease) State() []byte { return bytes.Clone(l.state) }

// Suspend implements [engine.Lease].
func (l *lease) Suspend(ctx context.Context, s engine.Suspension) (run engine.Run, err error) {
	err = l.change(func(a *active, r row) error {
		if err := s.Check(r.Run); err != nil {
			return err
		}
		log, _, err := l.worker.engine.liveLog(r.ID)
		if err != nil {
			return err
		}
		r.Run = r.Suspended(s, log.length())
		run, err = l.worker.engine.suspend(ctx, a, r, s)
		return err
	})
	return run, err
}

// suspend stores a suspension: r is the run after it.
func (e *Engine) suspend(ctx context.Context, a *active, r row, s engine.Suspension) (run engine.Run, err error) {
	record, err := r.encode()
	if err != nil {
		return run, err
	}
	children, err := rowsOf(s.Children)
	if err != nil {
		return run, err
	}
	state := bytes.Clone(s.State)
	called := bytes.Clone(s.Calls)
	more := r.StateSize - a.state + r.CallsSize - e.active.called(a)

	g := e.active
	err = e.db.write(ctx, func(w *conn) error {
		fresh, err := e.addChildren(w, r.Session, children, max(0, more))
		if err != nil {
			return err
		}
		mailbox, err := loadScope(w, engine.Scope{Session: r.Session, Run: r.ID})
		if err != nil {
			return err
		}

		w.after = append(w.after, func() {
			var woken []engine.Run
			g.mu.Lock()
			a.run, a.state, a.size = r.Light(), r.StateSize, a.size+more
			for _, child := range fresh {
				g.add(child)
			}
			if !s.Hold {
				a.changed = false
				g.addWaiting(a)
				if mailbox.version > r.Mail || g.due(a) {
					woken = g.resume(a)
				}
			}
			run = a.run
			g.mu.Unlock()

			for _, child := range fresh {
				e.feed.Publish(engine.RunEvent(engine.EventQueued, child.run))
			}
			if !s.Hold {
				e.feed.Publish(engine.RunEvent(engine.EventWaiting, r.Run))
			}
			e.woke(woken)
		})
		w.book.add(r.Session, more, 0)
		if err := w.run(`UPDATE runs SET record = ?, size = size + ? WHERE seq = ?`, record, more, r.seq); err != nil {
			return err
		}
		if called != nil {
			if err := w.run(`INSERT OR REPLACE INTO calls VALUES (?, ?)`, r.seq, called); err != nil {
				return err
			}
		}
		switch {
		case s.Drop:
			return w.run(`DELETE FROM states WHERE seq = ?`, r.seq)
		case state == nil: // keep the stored state
			return nil
		}
		return w.run(`INSERT OR REPLACE INTO states VALUES (?, ?)`, r.seq, state)
	})
	return run, err
}

// A childRow is a run to be stored, with its encoded record.
type childRow struct {
	row
	record []byte
}

func rowsOf(runs []engine.Run) (rows []childRow, err error) {
	for _, run := range runs {
		run.Status = engine.StatusQueued
		r := row{size: run.Size(), stored: stored{Run: run}}
		record, err := r.encode()
		if err = errors.Join(err, checkID(run.ID)); err != nil {
			return nil, err
		}
		rows = append(rows, childRow{r, record})
	}
	return rows, nil
}

// addChildren stores the runs whose ids are not taken. It first makes room for
// them, and for a number of further bytes, more.
func (e *Engine) addChildren(w *conn, session string, rows []childRow, more int64) (fresh []*active, err error) {
	var missing []childRow
	for _, r := range rows {
		err := unknown(w, r.Run)
		switch {
		case errors.Is(err, engine.ErrExists):
			continue
		case err != nil:
			return nil, err
		}
		missing = append(missing, r)
		more += r.size
	}
	if more > 0 {
		if err := e.makeRoom(w, session, more); err != nil {
			return nil, err
		}
	}

	for _, r := range missing {
		seq, err := insert(w, nil, r.row, r.record)
		if err != nil {
			return nil, err
		}
		fresh = append(fresh, &active{seq: seq, size: r.size, run: r.Light()})
	}
	return fresh, nil
}

// begin returns the log of an attempt that is started: a new log, or, with a
// state, the previous one cut to what belongs to the state.
func (g *logs) begin(before, run engine.Run) (*logFile, error) {
	if run.StateSize == 0 {
		return g.create(run), nil
	}
	if run.Attempt != before.Attempt {
		if err := g.copy(before, run); err != nil {
			return nil, err
		}
	}

	l, err := g.find(run)
	if err != nil {
		return nil, err
	}
	was := l.size()
	err = l.cut(run.StateLog)
	g.used.Add(l.size() - was)
	return l, err
}

// copy copies the log of one attempt to another attempt.
func (g *logs) copy(from, to engine.Run) (err error) {
	g.used.Add(-removeLog(g.folder(to)))
	listing := logFiles(g.folder(from), func(file os.FileInfo) {
		if err == nil && !strings.HasSuffix(file.Name(), ".new") {
			err = copyFile(filepath.Join(g.folder(from), file.Name()), filepath.Join(g.folder(to), file.Name()))
		}
	})
	g.used.Add(logSize(g.folder(to)))
	return errors.Join(listing, err)
}

// length returns the length of the stream.
func (l *logFile) length() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// cut makes the stream end at n, and removes everything after it.
func (l *logFile) cut(n int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()

	switch {
	case n > l.end:
		l.skipTo(n)
	case n <= l.head:
		if err := truncate(l.output(), n); err != nil {
			return err
		}
		l.head, l.end, l.segs = n, n, nil
	default:
		l.segs = slices.DeleteFunc(l.segs, func(s segment) bool { return s.off >= n })
		if last := len(l.segs) - 1; last >= 0 && l.segs[last].off+l.segs[last].n > n {
			s := &l.segs[last]
			if err := truncate(l.path(*s), n-s.off); err != nil {
				return err
			}
			s.n = n - s.off
		}
		l.end = n
	}

	keep := []string{engine.OutputLog}
	for _, s := range l.segs {
		keep = append(keep, s.name())
	}
	removeLog(l.dir, keep...)
	l.used = logSize(l.dir)
	return nil
}

// truncate shortens a file that may be missing.
func truncate(path string, n int64) error {
	err := os.Truncate(path, n)
	if missingFile(err) && n == 0 {
		return nil
	}
	return err
}
