package client

import (
	"context"
	"net/url"

	"github.com/toolhost/toolhost/server/wire"
)

// CallQuery selects direct calls. Its zero value is the latest 50.
type CallQuery struct {
	Tool   string // only calls of this tool
	Failed bool   // only calls without success
	Limit  int    // up to 200; 0 is 50
}

// Calls returns the latest direct calls, newest first: for the operator those of all
// sessions, for a user those of its own.
func (c *Client) Calls(ctx context.Context, q CallQuery) ([]wire.CallRecord, error) {
	query := url.Values{}
	set(query, "tool", q.Tool)
	set(query, "failed", q.Failed)
	set(query, "limit", q.Limit)
	out, err := do[wire.Calls](ctx, c, "GET", "/v1/calls?"+query.Encode(), nil)
	return out.Calls, err
}

// ToolStats returns figures of the direct calls by tool. It is for the operator.
func (c *Client) ToolStats(ctx context.Context) ([]wire.ToolFigures, error) {
	out, err := do[wire.ToolsFigures](ctx, c, "GET", "/v1/stats/tools", nil)
	return out.Tools, err
}

// History returns what happened in the last hour, by minute. It is for the operator.
func (c *Client) History(ctx context.Context) ([]wire.Minute, error) {
	out, err := do[wire.History](ctx, c, "GET", "/v1/stats/history", nil)
	return out.Minutes, err
}
