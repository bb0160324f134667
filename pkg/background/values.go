package background

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// Limits of the values of one session. The record quota limits the values of all
// sessions.
const (
	MaxValues     = 256      // number of values
	MaxValue      = 64 << 10 // bytes of one value
	MaxValueBytes = 1 << 20  // bytes of all values, with their keys
)

// valueKey matches the keys of values.
var valueKey = regexp.MustCompile(`^[A-Za-z0-9._:@-]{1,128}$`)

// Values are the values of a session: small JSON documents by key, stored like runs.
// They are kept until the session ends, or until Config.NoticeTTL passes without a
// write or a deletion. Do not store secrets: the store does not protect them.
//
// Values is cheap to copy, and safe for concurrent use.
type Values struct {
	engine engine.Engine
	scope  engine.Scope
	limit  engine.ValueLimit
	most   int // maximum size of one value, in bytes
}

// Values returns the values of a session.
func (m *Manager) Values(session string) Values { return ValuesOf(m.engine, session) }

// ValuesOf is like [Manager.Values], for an Executor that runs before New returns.
func ValuesOf(e engine.Engine, session string) Values {
	return ValuesIn(e, engine.Scope{Session: session}, engine.ValueLimit{Count: MaxValues, Bytes: MaxValueBytes}, MaxValue)
}

// ValuesIn returns the values of a scope with limits of their own. A named scope of a
// session is kept until the session ends, however old its values are; a scope without a
// session is kept forever. most is the limit of one value, in bytes.
func ValuesIn(e engine.Engine, scope engine.Scope, limit engine.ValueLimit, most int) Values {
	return Values{e, scope, limit, most}
}

// Get returns a value, or an error matching [engine.ErrNotFound].
func (v Values) Get(ctx context.Context, key string) (engine.Value, error) {
	if err := v.check(key); err != nil {
		return engine.Value{}, err
	}
	return v.engine.Value(ctx, v.scope, key)
}

// Set stores a value, which is JSON of at most MaxValue bytes, or the limit given to
// [ValuesIn], and returns it with its new version. The error matches
// [engine.ErrConflict] if the stored version differs from version: a missing value has
// version 0, and [engine.AnyVersion] matches any version. A key is 1 to 128 letters,
// digits and . _ : @ -, but not "." or "..". If a limit of the session is exceeded, the
// error is an *[engine.LimitError].
func (v Values) Set(ctx context.Context, key string, data json.RawMessage, version int64) (engine.Value, error) {
	return v.SetUntil(ctx, key, data, version, time.Time{})
}

// SetUntil is like Set, but the value is treated as missing from expires on; zero means
// never.
func (v Values) SetUntil(ctx context.Context, key string, data json.RawMessage, version int64, expires time.Time) (engine.Value, error) {
	err := v.check(key)
	switch {
	case err != nil:
		return engine.Value{}, err
	case len(data) > v.most:
		return engine.Value{}, &FieldError{"value", fmt.Sprintf("it has %d bytes, and at most %d are allowed", len(data), v.most)}
	case !json.Valid(data):
		return engine.Value{}, &FieldError{"value", "not valid JSON"}
	}
	return v.engine.PutValue(context.WithoutCancel(ctx), v.scope, engine.Value{Key: key, Data: data, Version: version, Expires: expires}, v.limit)
}

// Delete removes a value if it has the given version, and reports whether there was
// one. The error matches [engine.ErrConflict] if the stored version differs.
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

// List returns all values without their data, sorted by key.
func (v Values) List(ctx context.Context) ([]engine.Value, error) {
	return v.engine.Values(ctx, v.scope, "", 0, false)
}

// Page returns at most limit values whose keys begin with prefix and follow start, without
// their data, sorted by key.
func (v Values) Page(ctx context.Context, prefix, start string, limit int) ([]engine.Value, error) {
	if prefix != "" && !valueKey.MatchString(prefix) {
		return nil, &FieldError{"prefix", "expected up to 128 letters, digits and . _ : @ -"}
	}
	if first := before(prefix); start < first {
		start = first
	}
	found, err := v.engine.Values(ctx, v.scope, start, limit, false)
	for i, one := range found {
		if !strings.HasPrefix(one.Key, prefix) {
			return found[:i], err
		}
	}
	return found, err
}

// before returns a text that sorts between key and all lesser keys. Keys have no
// character above z.
func before(key string) string {
	if key == "" {
		return ""
	}
	last := len(key) - 1
	return key[:last] + string(key[last]-1) + "\x7f"
}

func (v Values) check(key string) error {
	switch {
	case v.scope == engine.Scope{}:
		return &FieldError{"session", "required"}
	case !valueKey.MatchString(key):
		return &FieldError{"key", "expected 1 to 128 letters, digits and . _ : @ -"}
	case key == "." || key == "..": // they have a meaning in paths
		return &FieldError{"key", "expected 1 to 128 letters, digits and . _ : @ -, and more than one or two dots"}
	}
	return nil
}
