// Package values serves the values that tools store: those that the tools of a session
// share, and the key-value stores of plugins. Both are scopes of one store.
package values

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/dryrun"
	"github.com/toolhost/toolhost/server/wire"
)

// Values are the values of one scope, as people and programs use them. It is a small
// value, safe for concurrent use.
type Values struct{ stored background.Values }

// OfSession returns the values that the tools of a session share.
func OfSession(e engine.Engine, session string) Values {
	return Values{background.ValuesOf(e, session)}
}

// List returns all values, without their data.
func (v Values) List(ctx context.Context) (wire.Values, error) { return shown(v.stored.List(ctx)) }

// Get returns one value.
func (v Values) Get(ctx context.Context, key string) (wire.Value, error) {
	found, err := v.stored.Get(ctx, key)
	return shownValue(found), err
}

// Set stores a value, at most 64 KiB of JSON, and returns it with its new version. It is a
// conflict if the stored value has another version than the given one; 0 is the version of a
// missing value. A session has at most 256 values, and 1 MiB in total. They are removed when
// the session ends, or when none was written for a week; in an unnamed session without an
// active run, for a day. Do not store secrets.
func (v Values) Set(ctx context.Context, key string, data json.RawMessage, version int64) (wire.Value, error) {
	if dryrun.In(ctx) {
		now, err := v.unchanged(ctx, key, version)
		return wire.Value{Key: key, Version: now.Version, Bytes: len(data), Value: data}, err
	}
	stored, err := v.stored.Set(ctx, key, data, version)
	return shownValue(stored), err
}

// Delete removes the value if it has that version, and reports whether there was one.
func (v Values) Delete(ctx context.Context, key string, version int64) (bool, error) {
	if dryrun.In(ctx) {
		now, err := v.unchanged(ctx, key, version)
		return now.Version > 0, err
	}
	return v.stored.Delete(ctx, key, version)
}

// unchanged returns the stored value if it has that version, for dry runs: the zero
// value if it is missing.
func (v Values) unchanged(ctx context.Context, key string, version int64) (wire.Value, error) {
	now, err := v.Get(ctx, key)
	if errors.Is(err, engine.ErrNotFound) {
		now, err = wire.Value{}, nil
	}
	if err == nil && version != engine.AnyVersion && version != now.Version {
		err = engine.ErrConflict
	}
	return now, err
}

// shown returns values as transports show them.
func shown(found []engine.Value, err error) (wire.Values, error) {
	out := wire.Values{Values: make([]wire.Value, len(found))}
	for i, one := range found {
		out.Values[i] = shownValue(one)
	}
	return out, err
}

func shownValue(v engine.Value) wire.Value {
	return wire.Value{Key: v.Key, Version: v.Version, Bytes: v.Bytes, WrittenAt: v.At, ExpiresAt: v.Expires, Value: v.Data}
}
