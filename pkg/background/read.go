package background

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

const (
	maxTail  = 1 << 20   // bytes of one Tail
	maxWrite = 256 << 10 // bytes of a log in memory at a time

	defaultRows  = 20
	maxListTitle = 40
)

// Get returns the record of a run of the session without its payload, or an
// error matching [engine.ErrNotFound]. A running run is as it is now.
func (m *Manager) Get(ctx context.Context, session, id string) (engine.Run, error) {
	run, _, err := m.reader.lookup(ctx, session, id)
	return run, err
}

// Find is Get for a run of any session. It is for operators: a front end for
// agents must not use it.
func (m *Manager) Find(ctx context.Context, id string) (engine.Run, error) {
	run, err := m.engine.Get(ctx, id)
	if err == nil {
		run, err = m.Get(ctx, run.Session, id)
	}
	if err != nil {
		return engine.Run{}, fmt.Errorf("find: %w", err)
	}
	return run, nil
}

// Payload returns one large part of a run of the session, nil if it has none, or
// an error matching [engine.ErrNotFound].
func (m *Manager) Payload(ctx context.Context, session, id string, part engine.Part) (json.RawMessage, error) {
	_, t, err := m.reader.lookup(ctx, session, id)
	if err != nil {
		return nil, err
	}
	return m.reader.payload(ctx, id, t, part)
}

// List returns the records that q selects, newest first and without their
// payload: of running runs with what they report now. With q.Session "" it
// returns those of all sessions, which is for operators: a front end for agents
// must name the session.
func (m *Manager) List(ctx context.Context, q engine.Query) ([]engine.Run, error) {
	return m.reader.list(ctx, q)
}

// Watch returns what happens to the runs and schedules of a session from now
// on, or of all sessions if session is "": see [engine.Engine.Watch]. News of a
// run of this worker comes within 100 ms. The channel is closed after ctx is
// done.
func (m *Manager) Watch(ctx context.Context, session string) <-chan engine.Event {
	return m.engine.Watch(ctx, session)
}

// Wait waits until any or all of the runs have ended, on whatever worker, or
// until ctx has, and returns their records in the order of the ids, each once.
// If the session does not have all of the runs, it returns a *[NotFoundError]
// at once. More than 1,000 ids are a *[FieldError]. Notices stay pending.
func (m *Manager) Wait(ctx context.Context, session string, ids []string, until Until) ([]engine.Run, error) {
	const most = 1000
	switch ids = distinct(ids); {
	case !until.valid():
		return nil, fmt.Errorf("wait: %w", &FieldError{"until", `must be "any" or "all"`})
	case len(ids) > most:
		return nil, fmt.Errorf("wait: %w", &FieldError{"task_ids", fmt.Sprintf("more than %d", most)})
	}

	known, missing, err := m.reader.find(ctx, session, ids)
	if err == nil && missing != nil {
		err = missing
	}
	if err == nil {
		err = m.reader.await(ctx, session, known, patience{until: until})
	}
	if err != nil {
		return nil, fmt.Errorf("wait: %w", err)
	}

	runs := make([]engine.Run, 0, len(ids))
	for _, h := range known {
		run, _, err := m.reader.relook(ctx, session, h)
		if err != nil {
			return nil, fmt.Errorf("wait: %w", err)
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// An OverviewRequest says what an overview shows. Its zero value shows 20 rows.
type OverviewRequest struct {
	ActiveOnly bool // leave out runs that have ended
	Limit      int  // at most so many rows; not positive: 20
}

// An Overview shows a model the runs of its session: active ones first, then the
// newest first. The counts are of all runs, whatever the rows show.
type Overview struct {
	Active   int   `json:"active"`
	Finished int   `json:"finished"`
	Tasks    []Row `json:"tasks"`
	More     int   `json:"more,omitempty"` // runs that the limit left out

	Schedules []ScheduleRow `json:"schedules,omitempty"` // enabled ones, newest first
}

// A ScheduleRow is one schedule in an [Overview].
type ScheduleRow struct {
	ScheduleID    string    `json:"schedule_id"`
	Title         string    `json:"title"` // cut to 40 characters
	NextTriggerAt time.Time `json:"next_trigger_at,omitzero"`
}

// A Row is one run in an [Overview].
type Row struct {
	TaskID         string        `json:"task_id"`
	Tool           string        `json:"tool"`
	Title          string        `json:"title"` // cut to 40 characters
	Status         engine.Status `json:"status"`
	Unsaved        bool          `json:"unsaved,omitempty"` // its end is not stored yet: see [engine.Run]
	ElapsedSeconds float64       `json:"elapsed_seconds"`
}

// Overview returns the runs and schedules of a session in short. That of a
// session without any is empty.
func (m *Manager) Overview(ctx context.Context, session string, req OverviewRequest) (Overview, error) {
	if session == "" {
		return Overview{}, fmt.Errorf("overview: %w", &FieldError{"session", "required"})
	}
	runs, err := m.reader.list(ctx, engine.Query{Session: session})
	if err != nil {
		return Overview{}, fmt.Errorf("overview: %w", err)
	}
	schedules, err := m.engine.Schedules(ctx, session, true)
	if err != nil {
		return Overview{}, fmt.Errorf("overview: listing schedules: %w", err)
	}

	var rows, finished []engine.Run
	for _, run := range runs {
		if run.Status.Terminal() {
			finished = append(finished, run)
		} else {
			rows = append(rows, run)
		}
	}
	all := Overview{Active: len(rows), Finished: len(finished), Tasks: []Row{}}
	if !req.ActiveOnly {
		rows = append(rows, finished...)
	}
	limit := req.Limit
	if limit <= 0 {
		limit = defaultRows
	}
	all.More = max(0, len(rows)-limit)

	now := time.Now()
	for _, run := range rows[:len(rows)-all.More] {
		all.Tasks = append(all.Tasks, Row{
			TaskID: run.ID, Tool: run.Tool, Title: output.Clip(run.Title, maxListTitle),
			Status: run.Status, Unsaved: run.Unsaved, ElapsedSeconds: tenths(run.Elapsed(now)),
		})
	}
	for _, s := range schedules {
		all.Schedules = append(all.Schedules, ScheduleRow{s.ID, output.Clip(s.Title, maxListTitle), s.NextAt})
	}
	return all, nil
}

// Tail reads up to max bytes, at most 1 MiB, of the raw log of a run's current
// attempt, as [output.Sink.Tail] does: of a running run as it is now, of an ended
// one as it was kept. The error matches [engine.ErrNotFound] if the session does
// not have the run.
func (m *Manager) Tail(ctx context.Context, session, id string, offset int64, max int) (engine.Chunk, error) {
	for {
		before := m.runs.get(id)
		live := before != nil && before.live.Load() // before the record, so that both are of one attempt
		run, t, err := m.reader.lookup(ctx, session, id)
		if err != nil {
			return engine.Chunk{}, fmt.Errorf("tail: %w", err)
		}
		chunk, err := m.reader.tail(ctx, id, t, offset, min(max, maxTail))
		if err != nil {
			return engine.Chunk{}, fmt.Errorf("tail: reading the log of run %s: %w", id, err)
		}
		if t == nil || live == t.live.Load() {
			chunk.Attempt = run.Attempt
			return chunk, nil
		}
	}
}

// A Log is the raw log of a run, as it is kept when it is asked for. It is for
// one reader.
type Log struct {
	Attempt int // of the run, whose log it is

	read  func(offset int64) (engine.Chunk, error)
	first engine.Chunk
}

// Log returns the raw log of a run's current attempt, to be written with
// [Log.WriteTo] while ctx is not done. The error matches [engine.ErrNotFound] if
// the session does not have the run.
func (m *Manager) Log(ctx context.Context, session, id string) (*Log, error) {
	read := func(offset int64) (engine.Chunk, error) { return m.Tail(ctx, session, id, offset, maxWrite) }
	first, err := read(0)
	if err != nil {
		return nil, err
	}
	return &Log{Attempt: first.Attempt, read: read, first: first}, nil
}

// WriteTo writes the log to w, with a line for what was dropped in its middle, as
// in [engine.OutputLog]. The error matches [engine.ErrFenced] if another attempt
// of the run has begun. After any error a part may have been written.
func (l *Log) WriteTo(w io.Writer) (n int64, err error) {
	at, chunk := int64(0), l.first
	for len(chunk.Data) > 0 {
		piece := chunk.Data
		if omitted := chunk.Offset - at; omitted > 0 {
			piece = append(fmt.Appendf(nil, "\n[system] %d bytes omitted\n", omitted), piece...)
		}
		written, err := w.Write(piece)
		if n += int64(written); err != nil {
			return n, err
		}

		if at = chunk.Offset + int64(len(chunk.Data)); at >= l.first.End {
			break
		}
		if chunk, err = l.read(at); err != nil {
			return n, err
		}
		if chunk.Attempt != l.Attempt {
			return n, fmt.Errorf("log of attempt %d: %w", l.Attempt, engine.ErrFenced)
		}
	}
	return n, nil
}

// Open opens an artifact of an ended run of the session: [engine.OutputLog] or
// [engine.ResultJSON]. The caller closes it. The error matches
// [engine.ErrNotFound] if the session does not have the run, it has not ended, or
// the name is unknown.
func (m *Manager) Open(ctx context.Context, session, id, name string) (engine.Artifact, error) {
	if _, _, err := m.reader.lookup(ctx, session, id); err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	artifact, err := m.engine.Open(ctx, id, name)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	return artifact, nil
}

// distinct returns the ids without repetitions, in a slice of its own.
func distinct(ids []string) []string {
	var out []string
	for _, id := range ids {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// gone reports whether err says that the session does not have a run.
func gone(err error) bool {
	_, unknown := errors.AsType[*NotFoundError](err)
	return unknown
}
