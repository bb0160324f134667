package server

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
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// storedValues implements [host.Values] for a call.
type storedValues struct {
	background.Values
	log     *slog.Logger
	call    string // id of the call
	session string // session of the call
	kv      string // plugin whose key-value store this is; empty for values of the session
}

// valuesFor returns the values of the session of a call; nil without a session.
func (s *store) valuesFor(call host.Call, log *slog.Logger) host.Values {
	if call.Session == "" {
		return nil
	}
	return storedValues{background.ValuesOf(s.engine, call.Session), log, call.ID, call.Session, ""}
}

// kvFor returns the key-value store granted to a plugin; nil if it has none in this session.
func (s *store) kvFor(tool *catalog.Tool, call host.Call, log *slog.Logger) host.Values {
	if tool.Plugin == nil || tool.Plugin.Grant.KV.Mode == "" {
		return nil
	}
	granted := tool.Plugin.Grant.KV
	scope := engine.Scope{Name: kvPrefix + tool.PluginName()}
	if granted.Scope == host.KVSession {
		if scope.Session = call.Session; call.Session == "" {
			return nil
		}
	}
	limit := engine.ValueLimit{Count: cmp.Or(granted.Keys, host.DefaultKVKeys), Bytes: cmp.Or(granted.Bytes, host.DefaultKVBytes)}
	return storedValues{background.ValuesIn(s.engine, scope, limit, abi.MaxKVValue), log, call.ID, call.Session, tool.PluginName()}
}

// Get implements [host.Values].
func (v storedValues) Get(ctx context.Context, key string) (host.Value, error) {
	found, err := v.Values.Get(ctx, key)
	if errors.Is(err, engine.ErrNotFound) {
		return host.Value{}, nil
	}
	return host.Value{Key: found.Key, Version: found.Version, Bytes: found.Bytes, Data: found.Data}, v.refused(err)
}

// Set implements [host.Values].
func (v storedValues) Set(ctx context.Context, key string, data json.RawMessage, version int64, ttl time.Duration) (int64, error) {
	if InDryRun(ctx) {
		return 0, errDryRun
	}
	var expires time.Time
	if ttl > 0 {
		expires = time.Now().Add(ttl)
	}
	stored, err := v.Values.SetUntil(ctx, key, data, version, expires)
	return stored.Version, v.refused(err)
}

// Delete implements [host.Values].
func (v storedValues) Delete(ctx context.Context, key string, version int64) (bool, error) {
	if InDryRun(ctx) {
		return false, errDryRun
	}
	deleted, err := v.Values.Delete(ctx, key, version)
	return deleted, v.refused(err)
}

// List implements [host.Values].
func (v storedValues) List(ctx context.Context, prefix, after string, most int) ([]host.Value, error) {
	found, err := v.Values.Page(ctx, prefix, after, most)
	all := make([]host.Value, len(found))
	for i, one := range found {
		all[i] = host.Value{Key: one.Key, Version: one.Version, Bytes: one.Bytes}
	}
	return all, v.refused(err)
}

// errDryRun is the error of a plugin that tries to change a value in a dry run.
var errDryRun = &host.Refusal{Code: abi.CallDenied, Message: "this is a dry run: nothing is stored"}

// refused converts an error for the plugin. It logs an error that is not the plugin's fault.
func (v storedValues) refused(err error) error {
	if err == nil {
		return nil
	}
	r := reason.Of(err)
	codes := map[wire.Code]int32{wire.CodeInvalid: abi.CallInvalid, wire.CodeConflict: abi.CallConflict, wire.CodeLimit: abi.CallLimit}
	code, ok := codes[r.Code]
	if !ok {
		v.log.Warn("values not reached", "call", v.call, "session", v.session, "error", err)
		return err
	}
	if full, ok := errors.AsType[*engine.LimitError](err); ok && v.kv != "" {
		r.Text = v.fullText(full, r.Text)
	}
	if r.Field != "" {
		r.Text = r.Field + ": " + r.Text
	}
	return &host.Refusal{Code: code, Message: r.Text}
}

// fullText returns the message about a full key-value store, or other for any other limit.
func (v storedValues) fullText(full *engine.LimitError, other string) string {
	switch {
	case errors.Is(full.Err, engine.ErrValueCount):
		return fmt.Sprintf("the key-value store of %s may have %d values: delete one first, or have the operator raise grants.%s.kv.keys", v.kv, full.Max, v.kv)
	case errors.Is(full.Err, engine.ErrValueBytes):
		return fmt.Sprintf("the key-value store of %s may have %d bytes of keys and values: delete or shorten one first, or have the operator raise grants.%s.kv.bytes", v.kv, full.Max, v.kv)
	}
	return other
}
