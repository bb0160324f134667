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

// quarantine looks at an error. If it is that of a damaged record, the record
// is set aside. It returns the error, or the one of setting aside.
func (e *Engine) quarantine(ctx context.Context, err error) error {
	var d *damagedRow
	if !errors.As(err, &d) {
		return err
	}
	moved := int64(0)
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
			err = dropSchedule(w, d.seq)
		} else {
			err = remove(w, d.seq)
		}
		return func() { e.report(p) }, err
	})
	if write != nil {
		return fmt.Errorf("%w; setting it aside: %w", d.err, write)
	}
	if moved > 0 && d.table == "runs" {
		e.moveFolders(d.id)
	}
	return err
}

// moveFolders takes the folders of a damaged record to the quarantine.
func (e *Engine) moveFolders(id string) {
	e.mu.Lock()
	delete(e.live, id)
	e.mu.Unlock()
	if checkID(id) != nil {
		return
	}
	entries, _ := os.ReadDir(e.path(runsFolder))
	for _, entry := range entries {
		if name, _, _ := strings.Cut(entry.Name(), "."); name == id {
			if err := e.moveAside(e.path(runsFolder, entry.Name()), entry.Name()); err != nil {
				e.log.Warn("folder of a damaged record not moved", "task_id", id, "error", err)
			}
		}
	}
}

// setAside moves a damaged file to the quarantine, and reports that.
func (e *Engine) setAside(p Problem, path, name string) {
	if err := e.moveAside(path, name); err != nil {
		p.Reason += "; not moved: " + err.Error()
	} else {
		p.Moved = quarantineFolder + "/" + name
	}
	e.report(p)
}

func (e *Engine) moveAside(path, name string) error {
	if err := os.MkdirAll(e.path(quarantineFolder), 0o700); err != nil {
		return err
	}
	return os.Rename(path, e.path(quarantineFolder, name))
}
