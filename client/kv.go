package client

import (
	"context"
	"net/url"

	"github.com/toolhost/toolhost/server/wire"
)

// KV is a key-value store of a plugin. Only the operator may use it.
type KV struct {
	client          *Client
	plugin, session string
}

// KV returns the key-value store of a plugin for a session. With an empty session it
// returns the store that all sessions share.
func (c *Client) KV(plugin, session string) KV { return KV{c, plugin, session} }

// Stores returns the key-value stores of all plugins, without their values. Only the
// operator may call it.
func (c *Client) Stores(ctx context.Context) ([]wire.KVStore, error) {
	out, err := do[wire.KVStores](ctx, c, "GET", "/v1/kv", nil)
	return out.Stores, err
}

// List returns up to 200 values without their data, sorted by key. It lists only keys that
// begin with the given prefix and sort after the key in the parameter after.
func (k KV) List(ctx context.Context, prefix, after string) ([]wire.Value, error) {
	query := url.Values{"limit": {"200"}}
	set(query, "prefix", prefix)
	set(query, "after", after)
	out, err := do[wire.Values](ctx, k.client, "GET", k.path("", query), nil)
	return out.Values, err
}

// Get returns a value.
func (k KV) Get(ctx context.Context, key string) (wire.Value, error) {
	return do[wire.Value](ctx, k.client, "GET", k.path(key, url.Values{}), nil)
}

// Delete removes a value. It is not an error if there is no such value.
func (k KV) Delete(ctx context.Context, key string) error {
	return k.client.Do(ctx, "DELETE", k.path(key, url.Values{}), nil, nil)
}

// Clear removes the store with all its values.
func (k KV) Clear(ctx context.Context) error {
	return k.client.Do(ctx, "DELETE", k.path("", url.Values{}), nil, nil)
}

func (k KV) path(key string, query url.Values) string {
	path := "/v1/kv/" + url.PathEscape(k.plugin)
	if key != "" {
		path += "/" + url.PathEscape(key)
	}
	set(query, "of_session", k.session)
	return withQuery(path, query)
}
