package background

import (
	"context"
	"fmt"
	"io"
)

// maxTail bounds one read of a log, in bytes.
const maxTail = 1 << 20

// Tail reads up to max bytes, at most 1 MiB, of a run's raw log from offset
// on, as [Sink.Tail] does: of a running run as it is now, of an ended one as
// it was kept. The log is that of the run's current attempt. For a run the
// session does not have, the error matches [ErrNotFound].
func (m *Manager) Tail(ctx context.Context, session, id string, offset int64, max int) (Chunk, error) {
	for {
		before := m.task(id)
		live := before != nil && before.live.Load() // before the record, so that both are of one attempt
		run, t, err := m.lookup(ctx, session, id)
		if err != nil {
			return Chunk{}, fmt.Errorf("tail: %w", err)
		}
		chunk, err := m.tail(ctx, id, t, offset, min(max, maxTail))
		if err != nil {
			return Chunk{}, fmt.Errorf("tail: reading the log of run %s: %w", id, err)
		}
		if t == nil || live == t.live.Load() {
			chunk.Attempt = run.Attempt
			return chunk, nil
		}
	}
}

// tail reads the log of a run: from its sink while that has all of it.
func (m *Manager) tail(ctx context.Context, id string, t *task, offset int64, max int) (Chunk, error) {
	if t != nil && t.live.Load() {
		return t.sink.Tail(offset, max), nil
	}
	return m.engine.Tail(ctx, id, offset, max)
}

// A Log is what is kept of a run's raw log when it is asked for. It is for one
// reader.
type Log struct {
	Attempt int // of the run, whose log it is

	next func(offset int64) (Chunk, error)
	read Chunk // what comes next
	end  int64
}

// Log returns the raw log of a run's current attempt. For a run the session does
// not have the error matches [ErrNotFound]. It is read while it is written, by
// [Log.WriteTo], as long as ctx is not done.
func (m *Manager) Log(ctx context.Context, session, id string) (*Log, error) {
	l := &Log{next: func(offset int64) (Chunk, error) { return m.Tail(ctx, session, id, offset, maxWrite) }}
	var err error
	if l.read, err = l.next(0); err != nil {
		return nil, err
	}
	l.Attempt, l.end = l.read.Attempt, l.read.End
	return l, nil
}

// WriteTo writes the log to w, with a line for what was dropped in its middle, as
// [OutputLog] has it. The error matches [ErrFenced] if another attempt of the run
// has begun meanwhile. After any error a part may have been written.
func (l *Log) WriteTo(w io.Writer) (n int64, err error) {
	for at := int64(0); len(l.read.Data) > 0; {
		piece := l.read.Data
		if omitted := l.read.Offset - at; omitted > 0 {
			piece = append(fmt.Appendf(nil, "\n[system] %d bytes omitted\n", omitted), piece...)
		}
		m, err := w.Write(piece)
		if n += int64(m); err != nil {
			return n, err
		}
		if at = l.read.Offset + int64(len(l.read.Data)); at >= l.end {
			break
		}
		if l.read, err = l.next(at); err != nil {
			return n, err
		}
		if l.read.Attempt != l.Attempt {
			return n, fmt.Errorf("log of attempt %d: %w", l.Attempt, ErrFenced)
		}
	}
	return n, nil
}

// maxWrite is how much of a log is in memory at a time, in bytes.
const maxWrite = 256 << 10

// Open opens an artifact of an ended run of the session: [OutputLog] or
// [ResultJSON]. The caller closes it. For a run the session does not have, one
// that has not ended and another name the error matches [ErrNotFound].
func (m *Manager) Open(ctx context.Context, session, id, name string) (Artifact, error) {
	if _, _, err := m.lookup(ctx, session, id); err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	artifact, err := m.engine.Open(ctx, id, name)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	return artifact, nil
}

// Watch returns what happens to the runs and schedules of a session from now
// on, or of all sessions if session is "": see [Feed.Watch]. A running run that
// says something new of itself, or writes output, is heard of within 100 ms.
// The channel is closed after ctx is done.
func (m *Manager) Watch(ctx context.Context, session string) <-chan Event {
	return m.engine.Watch(ctx, session)
}
