package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

const quarantineFolder = "quarantine"

// By its number alone it may be another one's by now: that of the last record is
// given again once it is gone.
const moveRun = `INSERT INTO quarantine (kind, id, session, reason, at, record, args, result, checkpoint, content)
	SELECT 'run', r.id, r.session, ?, ?, r.record, a.data, s.data, k.data, c.data FROM runs r
	LEFT JOIN args a ON a.seq = r.seq LEFT JOIN results s ON s.seq = r.seq LEFT JOIN checkpoints k ON k.seq = r.seq
	LEFT JOIN contents c ON c.seq = r.seq WHERE r.seq = ? AND iif(typeof(r.id) = 'text', r.id, '') = ?`

const moveSchedule = `INSERT INTO quarantine (kind, id, session, reason, at, record, args)
	SELECT 'schedule', s.id, s.session, ?, ?, s.record, a.data FROM schedules s LEFT JOIN schedule_args a ON a.seq = s.seq
	WHERE s.seq = ? AND iif(typeof(s.id) = 'text', s.id, '') = ?`

// notEnded stands for the logs of a run that has not ended: what is in its folders.
const notEnded = -1

const selectCounted = `SELECT iif(finished IS NULL, -1, iif(typeof(logged) = 'integer', max(0, logged), 0)) FROM runs WHERE seq = ?`

// quarantine looks at an error. If it is that of a damaged record, the record
// is set aside. It returns the error, or the one of setting aside.
func (e *Engine) quarantine(ctx context.Context, err error) error {
	var d *damagedRow
	if !errors.As(err, &d) {
		return err
	}
	var moved, logged int64
	write := e.write(ctx, func(w *conn) (func(), error) {
		sql, p := moveRun, Problem{Kind: ProblemRun, ID: d.id, Reason: d.err.Error(), Moved: "state.db, table quarantine"}
		if d.table == "schedules" {
			sql, p.Kind = moveSchedule, ProblemSchedule
		}
		var err error
		if moved, _, err = w.exec(sql, d.err.Error(), time.Now().UnixNano(), d.seq, d.id); err != nil || moved == 0 {
			return nil, err
		}
		if d.table == "schedules" {
			return func() { e.report(p) }, dropSchedule(w, d.seq)
		}
		if logged, err = w.number(selectCounted, d.seq); err != nil {
			return nil, err
		}
		return func() { e.report(p) }, remove(w, d.seq)
	})
	if write != nil {
		return fmt.Errorf("%w; setting it aside: %w", d.err, write)
	}
	if moved > 0 && d.table == "runs" {
		e.moveFolders(d.id, logged)
	}
	return err
}

// moveFolders takes the folders of a damaged record to the quarantine, where
// what logs take is not counted.
func (e *Engine) moveFolders(id string, logged int64) {
	e.mu.Lock()
	delete(e.live, id)
	e.mu.Unlock()
	for _, name := range e.foldersOf(id) {
		path := e.path(runsFolder, name)
		if logged == notEnded {
			e.used.Add(-logSize(path))
		}
		if _, err := e.moveAside(path, name); err != nil {
			e.log.Warn("folder of a damaged record not moved", "task_id", id, "error", err)
		}
	}
	if logged != notEnded {
		e.used.Add(-logged)
	}
}

// foldersOf returns the names of the folders of a run of which no more is known.
func (e *Engine) foldersOf(id string) (names []string) {
	if checkID(id) != nil {
		return nil
	}
	entries, _ := os.ReadDir(e.path(runsFolder))
	for _, entry := range entries {
		if of, _, _ := strings.Cut(entry.Name(), "."); of == id {
			names = append(names, entry.Name())
		}
	}
	return names
}

// setAside moves a damaged file to the quarantine, and reports that.
func (e *Engine) setAside(p Problem, path, name string) {
	moved, err := e.moveAside(path, name)
	if err != nil {
		p.Reason += "; not moved: " + err.Error()
	}
	p.Moved = moved
	e.report(p)
}

// moveAside moves a file or a folder to the quarantine and returns where it is,
// below the data directory. If there is one by that name, the time is added.
func (e *Engine) moveAside(path, name string) (moved string, err error) {
	if err := os.MkdirAll(e.path(quarantineFolder), 0o700); err != nil {
		return "", err
	}
	if _, err := os.Lstat(e.path(quarantineFolder, name)); err == nil {
		name += "." + timestamp()
	}
	if err := os.Rename(path, e.path(quarantineFolder, name)); err != nil {
		return "", err
	}
	e.aside.Add(1)
	return quarantineFolder + "/" + name, nil
}

// timestamp is a part of the name of what is set aside.
func timestamp() string { return time.Now().UTC().Format("20060102T150405.000000000Z") }
