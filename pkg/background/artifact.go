package background

import (
	"context"
	"fmt"
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
