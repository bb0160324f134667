package server

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/wire"
)

// AnyVersion stores or deletes a value regardless of its version.
const AnyVersion = engine.AnyVersion

// SessionValues are the values that the tools of a session share.
type SessionValues struct{ stored background.Values }

// Values returns the values that the tools of the session share.
func (v Session) Values() SessionValues { return SessionValues{v.service.runs.Values(v.name)} }

// List returns all values, without their data.
func (v SessionValues) List(ctx context.Context) (wire.Values, error) {
	found, err := v.stored.List(ctx)
	out := wire.Values{Values: make([]wire.Value, len(found))}
	for i, one := range found {
		out.Values[i] = newValue(one)
	}
	return out, err
}

// Get returns one value.
func (v SessionValues) Get(ctx context.Context, key string) (wire.Value, error) {
	found, err := v.stored.Get(ctx, key)
	return newValue(found), err
}

// Set stores a value, at most 64 KiB of JSON, and returns it with its new version. It is
// a conflict if the stored version differs; 0 is the version of a missing value. A
// session has at most 256 values and 1 MiB of them. They are removed when it ends, or
// when none was written for a week: for a day in an unnamed session without an active
// run. Do not store secrets.
func (v SessionValues) Set(ctx context.Context, key string, data json.RawMessage, version int64) (wire.Value, error) {
	if InDryRun(ctx) {
		now, err := v.unchanged(ctx, key, version)
		return wire.Value{Key: key, Version: now.Version, Bytes: len(data), Value: data}, err
	}
	stored, err := v.stored.Set(ctx, key, data, version)
	return newValue(stored), err
}

// Delete removes the value if it has that version, and reports whether there was one.
func (v SessionValues) Delete(ctx context.Context, key string, version int64) (bool, error) {
	if InDryRun(ctx) {
		now, err := v.unchanged(ctx, key, version)
		return now.Version > 0, err
	}
	return v.stored.Delete(ctx, key, version)
}

// unchanged returns the stored value if it has that version, for dry runs: the zero
// value if it is missing.
func (v SessionValues) unchanged(ctx context.Context, key string, version int64) (wire.Value, error) {
	now, err := v.Get(ctx, key)
	if errors.Is(err, engine.ErrNotFound) {
		now, err = wire.Value{}, nil
	}
	if err == nil && version != AnyVersion && version != now.Version {
		err = engine.ErrConflict
	}
	return now, err
}

func newValue(v engine.Value) wire.Value {
	return wire.Value{Key: v.Key, Version: v.Version, Bytes: v.Bytes, WrittenAt: v.At, ExpiresAt: v.Expires, Value: v.Data}
}
