package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/toolhost/toolhost/server/wire"
)

// Schedules gives access to the schedules of the session.
type Schedules struct{ client *Client }

// Schedules returns the schedules of the session.
func (c *Client) Schedules() Schedules { return Schedules{c} }

// Create stores a schedule. It does not support an idempotency key: if no response
// arrives, list the schedules before you repeat the request.
func (s Schedules) Create(ctx context.Context, schedule wire.NewSchedule) (wire.Schedule, error) {
	return do[wire.Schedule](ctx, s.client, "POST", "/v1/schedules", schedule)
}

// List returns the schedules, newest first. If enabled is true, it returns only those that
// will fire again.
func (s Schedules) List(ctx context.Context, enabled bool) ([]wire.Schedule, error) {
	out, err := do[wire.Schedules](ctx, s.client, "GET", "/v1/schedules?enabled="+strconv.FormatBool(enabled), nil)
	return out.Schedules, err
}

// ListAll is like List, but returns the schedules of all sessions. Only the operator may
// call it.
func (s Schedules) ListAll(ctx context.Context, enabled bool) ([]wire.Schedule, error) {
	out, err := do[wire.Schedules](ctx, s.client, "GET", "/v1/schedules?all_sessions=true&enabled="+strconv.FormatBool(enabled), nil)
	return out.Schedules, err
}

// Disable stops a schedule from firing. Its runs continue.
func (s Schedules) Disable(ctx context.Context, id string) (wire.Schedule, error) {
	return do[wire.Schedule](ctx, s.client, "POST", schedulePath(id)+"/disable", nil)
}

// Enable lets a disabled schedule fire again from now on.
func (s Schedules) Enable(ctx context.Context, id string) (wire.Schedule, error) {
	return do[wire.Schedule](ctx, s.client, "POST", schedulePath(id)+"/enable", nil)
}

// Fire starts a run of a schedule now, even if the schedule is disabled. It does not
// support an idempotency key: if no response arrives, read the schedule before you repeat
// the request.
func (s Schedules) Fire(ctx context.Context, id string) (wire.Run, error) {
	return do[wire.Run](ctx, s.client, "POST", schedulePath(id)+"/fire", nil)
}

// Remove removes a schedule permanently, and returns its last state. Its runs are kept.
func (s Schedules) Remove(ctx context.Context, id string) (wire.Schedule, error) {
	return do[wire.Schedule](ctx, s.client, "DELETE", schedulePath(id), nil)
}

func schedulePath(id string) string { return "/v1/schedules/" + url.PathEscape(id) }
