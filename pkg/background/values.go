package background

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// Bounds of the values of one session. The quota of records bounds those of all.
const (
	MaxValues     = 256      // values
	MaxValue      = 64 << 10 // bytes of one value
	MaxValueBytes = 1 << 20  // bytes of all, with their keys
)

// valueKey matches the keys of values.
var valueKey = regexp.MustCompile(`^[A-Za-z0-9._:@-]{1,128}$`)

// Values are the values of a session: small JSON documents by key, stored like runs.
// They are kept until the session ends, or until none was written or deleted for
// Config.NoticeTTL. They are not for secrets: the store does not hide them.
//
// It is a small value, safe for concurrent use.
type Values struct {
	engine engine.Engine
	scope  engine.Scope
}

// Values returns the values of a session.
func (m *Manager) Values(session string) Values { return ValuesOf(m.engine, session) }

// ValuesOf is [Manager.Values] for an Executor, which may be called before there is a
// Manager.
func ValuesOf(e engine.Engine, session string) Values {
	return Values{e, engine.Scope{Session: session}}
}

// Get returns a value, or an error matching [engine.ErrNotFound].
func (v Values) Get(ctx context.Context, key string) (engine.Value, error) {
	if err := v.check(key); err != nil {
		return engine.Value{}, err
	}
	return v.engine.Value(ctx, v.scope, key)
}

// Set stores a value, which is at most MaxValue bytes of JSON, and returns it with
// its new version. The error matches [engine.ErrConflict] if the stored version is
// another: 0 is that of a missing value, and [engine.AnyVersion] stores in any case.
// A key is 1 to 128 letters, digits and . _ : @ -. Beyond a limit of the session the
// error is an *[engine.LimitError].
func (v Values) Set(ctx context.Context, key string, data json.RawMessage, version int64) (engine.Value, error) {
	err := v.check(key)
	switch {
	case err != nil:
		return engine.Value{}, err
	case len(data) > MaxValue:
		return engine.Value{}, &FieldError{"value", fmt.Sprintf("it has %d bytes, and at most %d are allowed", len(data), MaxValue)}
	case !json.Valid(data):
		return engine.Value{}, &FieldError{"value", "not valid JSON"}
	}
	return v.engine.PutValue(context.WithoutCancel(ctx), v.scope, engine.Value{Key: key, Data: data, Version: version},
		engine.ValueLimit{Count: MaxValues, Bytes: MaxValueBytes})
}

// Delete removes a value of that version, and reports whether there was one. The
// error matches [engine.ErrConflict] if its version is another.
func (v Values) Delete(ctx context.Context, key string, version int64) (bool, error) {
	if err := v.check(key); err != nil {
		return false, err
	}
	err := v.engine.DeleteValue(context.WithoutCancel(ctx), v.scope, key, version)
	if errors.Is(err, engine.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// List returns all values without their data, by key.
func (v Values) List(ctx context.Context) ([]engine.Value, error) {
	return v.engine.Values(ctx, v.scope, "", 0, false)
}

func (v Values) check(key string) error {
	switch {
	case v.scope.Session == "":
		return &FieldError{"session", "required"}
	case !valueKey.MatchString(key):
		return &FieldError{"key", "expected 1 to 128 letters, digits and . _ : @ -"}
	}
	return nil
}
