package client

import (
	"context"
	"net/url"

	"github.com/toolhost/toolhost/server/wire"
)

// SessionValues gives access to the values that the tools of the session share.
type SessionValues struct{ client *Client }

// Values returns the values that the tools of the session share.
func (c *Client) Values() SessionValues { return SessionValues{c} }

// List returns all values without their data, sorted by key.
func (v SessionValues) List(ctx context.Context) ([]wire.Value, error) {
	out, err := do[wire.Values](ctx, v.client, "GET", "/v1/session/values", nil)
	return out.Values, err
}

// Get returns a value.
func (v SessionValues) Get(ctx context.Context, key string) (wire.Value, error) {
	return do[wire.Value](ctx, v.client, "GET", valuePath(key), nil)
}

// Set stores a value, and returns it with its new version.
func (v SessionValues) Set(ctx context.Context, key string, value wire.SetValue) (wire.Value, error) {
	return do[wire.Value](ctx, v.client, "PUT", valuePath(key), value)
}

// Delete removes a value, whatever its version. It is not an error if there is no such value.
func (v SessionValues) Delete(ctx context.Context, key string) error {
	return v.client.Do(ctx, "DELETE", valuePath(key), nil, nil)
}

func valuePath(key string) string { return "/v1/session/values/" + url.PathEscape(key) }
