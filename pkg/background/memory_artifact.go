package background

import (
	"bytes"
	"context"
	"fmt"
	"slices"
)

// Open implements [Engine].
func (e *MemoryEngine) Open(_ context.Context, id, name string) (Artifact, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, err := e.find(id)
	if err != nil {
		return nil, err
	}
	if r.run.Status.Terminal() {
		switch name {
		case OutputLog:
			return memoryArtifact{bytes.NewReader([]byte(r.log.output().String()))}, nil
		case ResultJSON:
			data, err := r.run.ResultFile()
			return memoryArtifact{bytes.NewReader(data)}, err
		}
	}
	return nil, fmt.Errorf("%w: %s of %s", ErrNotFound, name, id)
}

type memoryArtifact struct{ *bytes.Reader }

func (memoryArtifact) Close() error { return nil }

// Acknowledge implements [Engine].
func (e *MemoryEngine) Acknowledge(_ context.Context, session string, ids []string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.sessions[session] {
		if r.run.Notice == NoticePending && slices.Contains(ids, r.run.ID) {
			r.run.Notice = NoticeSeen
			e.count(r)
			e.feed.Publish(RunEvent(EventSeen, r.run))
		}
	}
	return nil
}

// Watch implements [Engine].
func (e *MemoryEngine) Watch(ctx context.Context, session string) <-chan Event {
	return e.feed.Watch(ctx, session)
}
