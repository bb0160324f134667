package values

import (
	"context"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/dryrun"
	"github.com/toolhost/toolhost/server/wire"
)

// kvPrefix is the prefix of the names of scopes that are key-value stores.
const kvPrefix = "kv:"

// kvScope returns the scope of the key-value store of a plugin. The session is empty for
// a store that all sessions share.
func kvScope(plugin, session string) engine.Scope {
	return engine.Scope{Session: session, Name: kvPrefix + plugin}
}

// KV manages the key-value stores of plugins, for operators. A store outlives its plugin
// and the plugin's grant.
type KV struct {
	engine engine.Engine
	audit  func(action, session, id string)
}

// NewKV returns the key-value stores in an engine. It calls audit after each change.
func NewKV(e engine.Engine, audit func(action, session, id string)) KV { return KV{e, audit} }

// List returns all stores, sorted by session and plugin.
func (k KV) List(ctx context.Context) (wire.KVStores, error) {
	found, err := k.engine.Scopes(ctx, "", kvPrefix)
	out := wire.KVStores{Stores: make([]wire.KVStore, len(found))}
	for i, s := range found {
		out.Stores[i] = wire.KVStore{Plugin: strings.TrimPrefix(s.Name, kvPrefix), Session: s.Session, Keys: s.Count, Bytes: s.Bytes, ChangedAt: s.Changed}
	}
	return out, err
}

// values returns the values of one store, to read and to remove them.
func (k KV) values(plugin, session string) Values {
	return Values{background.ValuesIn(k.engine, kvScope(plugin, session), engine.ValueLimit{}, abi.MaxKVValue)}
}

// Keys returns a page of a store, sorted by key and without data: the values whose keys begin
// with prefix and come after the key that the parameter after holds. The parameter most is the
// maximum number of values. The session is empty for a store that all sessions share.
func (k KV) Keys(ctx context.Context, plugin, session, prefix, after string, most int) (wire.Values, error) {
	return shown(k.values(plugin, session).stored.Page(ctx, prefix, after, most))
}

// Get returns one value of a store. The error matches engine.ErrNotFound.
func (k KV) Get(ctx context.Context, plugin, session, key string) (wire.Value, error) {
	return k.values(plugin, session).Get(ctx, key)
}

// Delete removes one value, and reports whether there was one. A dry run removes
// nothing.
func (k KV) Delete(ctx context.Context, plugin, session, key string) (bool, error) {
	deleted, err := k.values(plugin, session).Delete(ctx, key, engine.AnyVersion)
	if deleted && !dryrun.In(ctx) {
		k.audit("kv value removed", session, plugin+" "+key)
	}
	return deleted, err
}

// Clear removes a store. A dry run removes nothing.
func (k KV) Clear(ctx context.Context, plugin, session string) error {
	if dryrun.In(ctx) {
		return nil
	}
	err := k.engine.DropValues(context.WithoutCancel(ctx), kvScope(plugin, session), "")
	if err == nil {
		k.audit("kv store removed", session, plugin)
	}
	return err
}
