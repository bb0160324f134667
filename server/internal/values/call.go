package values

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/dryrun"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// Calls opens values for the calls of plugins. It is a small value, safe for concurrent
// use.
type Calls struct {
	Engine engine.Engine
	Log    *slog.Logger // gets errors that are not a plugin's fault
}

// Session returns the values of a call's session; nil if it has no session.
func (c Calls) Session(call host.Call) host.Values {
	if call.Session == "" {
		return nil
	}
	return callValues{background.ValuesOf(c.Engine, call.Session), c.Log, call.ID, call.Session, ""}
}

// KV returns the key-value store that was granted to a plugin; nil if the plugin has none in
// the session of the call.
func (c Calls) KV(plugin string, granted host.KV, call host.Call) host.Values {
	shared := granted.Scope != host.KVSession
	if granted.Mode == "" || !shared && call.Session == "" {
		return nil
	}
	scope := kvScope(plugin, call.Session)
	if shared {
		scope.Session = ""
	}
	limit := engine.ValueLimit{Count: cmp.Or(granted.Keys, host.DefaultKVKeys), Bytes: cmp.Or(granted.Bytes, host.DefaultKVBytes)}
	return callValues{background.ValuesIn(c.Engine, scope, limit, abi.MaxKVValue), c.Log, call.ID, call.Session, plugin}
}

// callValues implements [host.Values] for a call.
type callValues struct {
	background.Values
	log     *slog.Logger
	call    string // id of the call
	session string // session of the call
	plugin  string // owner of the key-value store; empty for values of the session
}

// Get implements [host.Values].
func (v callValues) Get(ctx context.Context, key string) (host.Value, error) {
	found, err := v.Values.Get(ctx, key)
	if errors.Is(err, engine.ErrNotFound) {
		return host.Value{}, nil
	}
	return host.Value{Key: found.Key, Version: found.Version, Bytes: found.Bytes, Data: found.Data}, v.refusal(err)
}

// Set implements [host.Values].
func (v callValues) Set(ctx context.Context, key string, data json.RawMessage, version int64, ttl time.Duration) (int64, error) {
	if dryrun.In(ctx) {
		return 0, errDryRun
	}
	var expires time.Time
	if ttl > 0 {
		expires = time.Now().Add(ttl)
	}
	stored, err := v.Values.SetUntil(ctx, key, data, version, expires)
	return stored.Version, v.refusal(err)
}

// Delete implements [host.Values].
func (v callValues) Delete(ctx context.Context, key string, version int64) (bool, error) {
	if dryrun.In(ctx) {
		return false, errDryRun
	}
	deleted, err := v.Values.Delete(ctx, key, version)
	return deleted, v.refusal(err)
}

// List implements [host.Values].
func (v callValues) List(ctx context.Context, prefix, after string, most int) ([]host.Value, error) {
	found, err := v.Values.Page(ctx, prefix, after, most)
	all := make([]host.Value, len(found))
	for i, one := range found {
		all[i] = host.Value{Key: one.Key, Version: one.Version, Bytes: one.Bytes}
	}
	return all, v.refusal(err)
}

// errDryRun is the error of a plugin that tries to change a value in a dry run.
var errDryRun = &host.Refusal{Code: abi.CallDenied, Message: "this is a dry run: nothing is stored"}

// refusalCodes are the codes of the errors that a plugin sees.
var refusalCodes = map[wire.Code]int32{wire.CodeInvalid: abi.CallInvalid, wire.CodeConflict: abi.CallConflict, wire.CodeLimit: abi.CallLimit}

// refusal converts an error for the plugin. It logs an error that is not the plugin's fault.
func (v callValues) refusal(err error) error {
	if err == nil {
		return nil
	}
	r := reason.Of(err)
	code, ok := refusalCodes[r.Code]
	if !ok {
		v.log.Warn("values not reached", "call", v.call, "session", v.session, "error", err)
		if !errors.Is(err, engine.ErrFull) {
			return err
		}
		code = abi.CallFailed
	}
	if full, ok := errors.AsType[*engine.LimitError](err); ok && v.plugin != "" {
		r.Text = v.fullText(full, r.Text)
	}
	if r.Field != "" {
		r.Text = r.Field + ": " + r.Text
	}
	return &host.Refusal{Code: code, Message: r.Text}
}

// fullText returns the message about a full key-value store; for any other limit, it returns
// the text other.
func (v callValues) fullText(full *engine.LimitError, other string) string {
	switch {
	case errors.Is(full.Err, engine.ErrValueCount):
		return fmt.Sprintf("the key-value store of %s may have %d values: delete one first, or have the operator raise grants.%s.kv.keys", v.plugin, full.Max, v.plugin)
	case errors.Is(full.Err, engine.ErrValueBytes):
		return fmt.Sprintf("the key-value store of %s may have %d bytes of keys and values: delete or shorten one first, or have the operator raise grants.%s.kv.bytes", v.plugin, full.Max, v.plugin)
	}
	return other
}
