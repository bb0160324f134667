package server

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/wire"
)

// AnyVersion stores or deletes a value whatever its version.
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

// Set stores a value, at most 64 KiB of JSON, and returns it with its new
// version. It is a conflict if the stored version is another: 0 is that of a missing
// value. A session has at most 256 values and 1 MiB of them. They are removed when
// it ends, or when none was written for a week. Do not store secrets.
func (v SessionValues) Set(ctx context.Context, key string, data json.RawMessage, version int64) (wire.Value, error) {
	if InDryRun(ctx) {
		now, err := v.unchanged(ctx, key, version)
		return wire.Value{Key: key, Version: now.Version, Bytes: len(data), Value: data}, err
	}
	stored, err := v.stored.Set(ctx, key, data, version)
	return newValue(stored), err
}

// Delete removes a value of that version, and reports whether there was one.
func (v SessionValues) Delete(ctx context.Context, key string, version int64) (bool, error) {
	if InDryRun(ctx) {
		now, err := v.unchanged(ctx, key, version)
		return now.Version > 0, err
	}
	return v.stored.Delete(ctx, key, version)
}

// unchanged returns the stored value if it has that version, for dry runs: the zero
// value if there is none.
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
	return wire.Value{Key: v.Key, Version: v.Version, Bytes: v.Bytes, WrittenAt: v.At, Value: v.Data}
}

// sessionValues are the values of a session as plugins see them.
type sessionValues struct {
	background.Values
	service *Service
	call    host.Call
}

// valuesFor returns the values of the session of a call; nil if it has none.
func (s *Service) valuesFor(call host.Call) host.Values {
	if call.Session == "" {
		return nil
	}
	return sessionValues{background.ValuesOf(s.engine, call.Session), s, call}
}

// Get implements [host.Values].
func (v sessionValues) Get(ctx context.Context, key string) (host.Value, error) {
	found, err := v.Values.Get(ctx, key)
	if errors.Is(err, engine.ErrNotFound) {
		return host.Value{}, nil
	}
	return host.Value{Key: found.Key, Version: found.Version, Bytes: found.Bytes, Data: found.Data}, v.refused(err)
}

// Set implements [host.Values].
func (v sessionValues) Set(ctx context.Context, key string, data json.RawMessage, version int64) (int64, error) {
	if InDryRun(ctx) {
		return 0, errDryRun
	}
	stored, err := v.Values.Set(ctx, key, data, version)
	return stored.Version, v.refused(err)
}

// Delete implements [host.Values].
func (v sessionValues) Delete(ctx context.Context, key string, version int64) (bool, error) {
	if InDryRun(ctx) {
		return false, errDryRun
	}
	deleted, err := v.Values.Delete(ctx, key, version)
	return deleted, v.refused(err)
}

// List implements [host.Values].
func (v sessionValues) List(ctx context.Context) ([]host.Value, error) {
	found, err := v.Values.List(ctx)
	all := make([]host.Value, len(found))
	for i, one := range found {
		all[i] = host.Value{Key: one.Key, Version: one.Version, Bytes: one.Bytes}
	}
	return all, v.refused(err)
}

// errDryRun is what a plugin sees that would change a value in a dry run.
var errDryRun = &host.Refusal{Code: abi.CallDenied, Message: "this is a dry run: nothing is stored"}

// refused returns an error as the plugin sees it, and logs any other.
func (v sessionValues) refused(err error) error {
	if err == nil {
		return nil
	}
	r := ReasonOf(err)
	codes := map[wire.Code]int32{wire.CodeInvalid: abi.CallInvalid, wire.CodeConflict: abi.CallConflict, wire.CodeLimit: abi.CallLimit}
	code, ok := codes[r.Code]
	if !ok {
		v.service.log.Warn("values of a session not reached", "call", v.call.ID, "session", v.call.Session, "error", err)
		return err
	}
	if r.Field != "" {
		r.Text = r.Field + ": " + r.Text
	}
	return &host.Refusal{Code: code, Message: r.Text}
}
