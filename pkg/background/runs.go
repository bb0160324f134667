package background

import (
	"context"
	"fmt"
)

// Runs returns the records of a session's runs that q selects, newest first,
// without their Args, Result and Content: those of running ones with what they say of
// themselves now. q.Session is ignored. It is for those who page through
// records; what an agent is shown is [Manager.List].
func (m *Manager) Runs(ctx context.Context, session string, q Query) ([]Run, error) {
	if session == "" {
		return nil, fmt.Errorf("runs: %w", &FieldError{"session", "required"})
	}
	q.Session = session
	runs, err := m.list(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("runs: %w", err)
	}
	return runs, nil
}
