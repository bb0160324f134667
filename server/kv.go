package server

import (
	"context"
	"errors"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/wire"
)

// kvPrefix is the prefix of the scopes that are key-value stores.
const kvPrefix = "kv:"

// KV manages the key-value stores of plugins, for operators. A store outlives its plugin
// and the plugin's grant.
type KV struct{ *store }

// KV returns the key-value stores of plugins.
func (s *store) KV() KV { return KV{s} }

// List returns all stores, sorted by session and plugin.
func (k KV) List(ctx context.Context) (wire.KVStores, error) {
	found, err := k.engine.Scopes(ctx, "", kvPrefix)
	out := wire.KVStores{Stores: make([]wire.KVStore, len(found))}
	for i, s := range found {
		out.Stores[i] = wire.KVStore{Plugin: strings.TrimPrefix(s.Name, kvPrefix), Session: s.Session, Keys: s.Count, Bytes: s.Bytes, ChangedAt: s.Changed}
	}
	return out, err
}

// values returns the values of one store.
func (k KV) values(plugin, session string) background.Values {
	return background.ValuesIn(k.engine, engine.Scope{Session: session, Name: kvPrefix + plugin}, engine.ValueLimit{}, abi.MaxKVValue)
}

// Keys returns a page of a store, by key and without data: up to most values whose keys
// begin with prefix and follow the key after. The session is empty for a store that all
// sessions share.
func (k KV) Keys(ctx context.Context, plugin, session, prefix, after string, most int) (wire.Values, error) {
	found, err := k.values(plugin, session).Page(ctx, prefix, after, most)
	out := wire.Values{Values: make([]wire.Value, len(found))}
	for i, one := range found {
		out.Values[i] = newValue(one)
	}
	return out, err
}

// Get returns one value of a store. The error matches engine.ErrNotFound.
func (k KV) Get(ctx context.Context, plugin, session, key string) (wire.Value, error) {
	found, err := k.values(plugin, session).Get(ctx, key)
	return newValue(found), err
}

// Delete removes one value, and reports whether there was one. A dry run removes
// nothing.
func (k KV) Delete(ctx context.Context, plugin, session, key string) (bool, error) {
	if InDryRun(ctx) {
		_, err := k.Get(ctx, plugin, session, key)
		if errors.Is(err, engine.ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	}
	deleted, err := k.values(plugin, session).Delete(ctx, key, AnyVersion)
	if deleted {
		k.audit.Admin("kv value removed", session, plugin+" "+key)
	}
	return deleted, err
}

// Clear removes a store. A dry run removes nothing.
func (k KV) Clear(ctx context.Context, plugin, session string) error {
	if InDryRun(ctx) {
		return nil
	}
	err := k.engine.DropValues(context.WithoutCancel(ctx), engine.Scope{Session: session, Name: kvPrefix + plugin}, "")
	if err == nil {
		k.audit.Admin("kv store removed", session, plugin)
	}
	return err
}
