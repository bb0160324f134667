package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/toolhost/toolhost/server/wire"
)

// Schedules are the schedules of the session, or of all sessions for an operator that
// names none.
type Schedules struct{ client *Client }

// Schedules returns the schedules.
func (c *Client) Schedules() Schedules { return Schedules{c} }

// Create stores a schedule. It has no idempotency key: before repeating a request without
// an answer, list the schedules.
func (s Schedules) Create(ctx context.Context, schedule wire.NewSchedule) (wire.Schedule, error) {
	return do[wire.Schedule](ctx, s.client, "POST", "/v1/schedules", schedule)
}

// List returns the schedules, the newest first; with enabled only those that will fire
// again.
func (s Schedules) List(ctx context.Context, enabled bool) ([]wire.Schedule, error) {
	out, err := do[wire.Schedules](ctx, s.client, "GET", "/v1/schedules?enabled="+strconv.FormatBool(enabled), nil)
	return out.Schedules, err
}

// Disable stops a schedule from firing. Its runs continue.
func (s Schedules) Disable(ctx context.Context, id string) (wire.Schedule, error) {
	return do[wire.Schedule](ctx, s.client, "POST", schedulePath(id)+"/disable", nil)
}

// Enable lets a disabled schedule fire again, from now on.
func (s Schedules) Enable(ctx context.Context, id string) (wire.Schedule, error) {
	return do[wire.Schedule](ctx, s.client, "POST", schedulePath(id)+"/enable", nil)
}

// Fire queues a run of a schedule now, also of a disabled one. It has no idempotency key:
// before repeating a request without an answer, read the schedule.
func (s Schedules) Fire(ctx context.Context, id string) (wire.Run, error) {
	return do[wire.Run](ctx, s.client, "POST", schedulePath(id)+"/fire", nil)
}

// Remove removes a schedule for good, and returns it as it was. Its runs stay.
func (s Schedules) Remove(ctx context.Context, id string) (wire.Schedule, error) {
	return do[wire.Schedule](ctx, s.client, "DELETE", schedulePath(id), nil)
}

func schedulePath(id string) string { return "/v1/schedules/" + url.PathEscape(id) }
