package client

import (
	"context"
	"io"
	"net/url"

	"github.com/toolhost/toolhost/server/wire"
)

// CallQuery selects calls. The zero value selects the latest 50.
type CallQuery struct {
	Tool   string // only calls to this tool
	Failed bool   // only unsuccessful calls
	Limit  int    // maximum number of calls to return, at most 200; 0 means 50
}

// Calls returns the latest calls, newest first: of all sessions for the operator, and of
// their own sessions for users.
func (c *Client) Calls(ctx context.Context, q CallQuery) ([]wire.CallRecord, error) {
	query := url.Values{}
	set(query, "tool", q.Tool)
	set(query, "failed", q.Failed)
	set(query, "limit", q.Limit)
	out, err := do[wire.Calls](ctx, c, "GET", "/v1/calls?"+query.Encode(), nil)
	return out.Calls, err
}

// ToolStats returns statistics about the calls to each tool. Only the operator may call it.
func (c *Client) ToolStats(ctx context.Context) ([]wire.ToolFigures, error) {
	out, err := do[wire.ToolsFigures](ctx, c, "GET", "/v1/stats/tools", nil)
	return out.Tools, err
}

// Hosts returns the servers that share an engine for background runs, and the plugins that
// differ between them. Only the operator may call it.
func (c *Client) Hosts(ctx context.Context) (wire.Hosts, error) {
	return do[wire.Hosts](ctx, c, "GET", "/v1/hosts", nil)
}

// Reload makes the server reload its configuration and plugins, and returns the changes.
// If the server refuses, nothing has changed, and the error is a [*wire.Problem] with the
// reason. Only the operator may call it.
func (c *Client) Reload(ctx context.Context) (wire.Reload, error) {
	return do[wire.Reload](ctx, c, "POST", "/v1/reload", nil)
}

// Backup makes a backup of the server's data folder, and returns it as a zip archive, which
// the caller must close. If reading the archive fails, discard what was read: it is not a
// complete backup. Only the operator may call it.
func (c *Client) Backup(ctx context.Context) (io.ReadCloser, error) {
	return open(ctx, c, "POST", "/v1/backup")
}

// History returns the statistics of the last hour, by minute. Only the operator may call
// it.
func (c *Client) History(ctx context.Context) ([]wire.Minute, error) {
	out, err := do[wire.History](ctx, c, "GET", "/v1/stats/history", nil)
	return out.Minutes, err
}
