package background

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

const (
	maxTail  = 1 << 20   // bytes of one Tail
	maxWrite = 256 << 10 // bytes of a log held in memory at a time
)

// Get returns the record of a run of the session without its payload, or an error
// matching [engine.ErrNotFound]. A running run is returned in its current state.
func (m *Manager) Get(ctx context.Context, session, id string) (engine.Run, error) {
	h, err := m.reader.lookup(ctx, session, id)
	return h.run, err
}

// Find is like Get, but for a run of any session. It is for operators; a front end for
// agents must not use it.
func (m *Manager) Find(ctx context.Context, id string) (engine.Run, error) {
	run, err := m.engine.Get(ctx, id)
	if err != nil {
		return engine.Run{}, fmt.Errorf("reading run %s: %w", id, err)
	}
	return m.Get(ctx, run.Session, id)
}

// Remove removes an ended run of the session, with its log, artifacts and notice. The
// error matches [engine.ErrNotFound], or [engine.ErrActive] if the run has not ended or
// its end is not stored yet.
func (m *Manager) Remove(ctx context.Context, session, id string) error {
	h, err := m.reader.lookup(ctx, session, id)
	if err == nil && !h.run.Final() {
		err = fmt.Errorf("%w: %s", engine.ErrActive, id)
	}
	if err == nil {
		err = m.engine.Remove(ctx, id)
	}
	if err != nil {
		return fmt.Errorf("removing a run: %w", err)
	}
	m.log.Info("background run removed", "task_id", id, "session", session)
	return nil
}

// Payload returns one part of the payload of a run of the session, nil if the run has
// none, or an error matching [engine.ErrNotFound].
func (m *Manager) Payload(ctx context.Context, session, id string, part engine.Part) (json.RawMessage, error) {
	h, err := m.reader.lookup(ctx, session, id)
	if err != nil {
		return nil, err
	}
	return m.reader.payload(ctx, h, part)
}

// List returns the records that q selects, newest first and without their payload.
// Running runs have their current progress. An empty q.Session selects all
// sessions, which is for operators; a front end for agents must name the session.
func (m *Manager) List(ctx context.Context, q engine.Query) ([]engine.Run, error) {
	return m.reader.list(ctx, q)
}

// Watch returns a channel of future events of the runs and schedules of a session, or
// of all sessions if session is "": see [engine.Engine.Watch]. Events of a run of this
// worker arrive within 100 ms. The channel is closed after ctx is done.
func (m *Manager) Watch(ctx context.Context, session string) <-chan engine.Event {
	return m.engine.Watch(ctx, session)
}

// Tail reads up to max bytes, at most 1 MiB, of the raw log of a run's current
// attempt, as [output.Sink.Tail] does. The log of a running run is current; for
// an ended run it is the kept part. The error matches [engine.ErrNotFound] if the
// session does not have the run.
func (m *Manager) Tail(ctx context.Context, session, id string, offset int64, max int) (chunk engine.Chunk, err error) {
	h, err := m.reader.lookup(ctx, session, id)
	if err == nil {
		h, err = m.reader.steady(ctx, session, h, func(h handle) (err error) {
			chunk, err = m.reader.tail(ctx, h, offset, min(max, maxTail))
			return err
		})
	}
	if err != nil {
		return engine.Chunk{}, fmt.Errorf("reading the log of run %s: %w", id, err)
	}
	chunk.Attempt = h.run.Attempt
	return chunk, nil
}

// A Log is the raw log of a run, as it was when [Manager.Log] was called. It is meant
// for a single reader.
type Log struct {
	Attempt int // attempt that wrote the log

	read  func(offset int64) (engine.Chunk, error)
	first engine.Chunk
}

// Log returns the raw log of a run's current attempt. [Log.WriteTo] writes it,
// until ctx is done. The error matches [engine.ErrNotFound] if the session does
// not have the run.
func (m *Manager) Log(ctx context.Context, session, id string) (*Log, error) {
	read := func(offset int64) (engine.Chunk, error) { return m.Tail(ctx, session, id, offset, maxWrite) }
	first, err := read(0)
	if err != nil {
		return nil, err
	}
	return &Log{Attempt: first.Attempt, read: read, first: first}, nil
}

// WriteTo writes the log to w, with a line in place of bytes dropped from its middle,
// as in [engine.OutputLog]. The error matches [engine.ErrFenced] if another attempt of
// the run has begun. If there is an error, part of the log may have been written.
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
// [engine.ResultJSON]. The caller closes it. The error matches [engine.ErrNotFound] if
// the session does not have the run, the run has not ended, or the name is unknown.
func (m *Manager) Open(ctx context.Context, session, id, name string) (engine.Artifact, error) {
	if _, err := m.reader.lookup(ctx, session, id); err != nil {
		return nil, err
	}
	return m.engine.Open(ctx, id, name)
}
