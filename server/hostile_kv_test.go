package server

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// TestHostileKV: what a plugin tries with its key-value store and with those of others.
func TestHostileKV(t *testing.T) {
	write := host.KV{Mode: abi.StoreWrite}
	own := host.KV{Mode: abi.StoreWrite, Scope: host.KVSession}
	// use makes one request, after another plugin and another session have stored a secret.
	use := func(granted host.KV, op, request string) func(t *testing.T) string {
		return func(t *testing.T) string {
			s := openKV(t, "", map[string]kvPlugin{"mine": {granted: granted, op: op, request: request}})
			for _, other := range [][2]string{{"other", ""}, {"mine2", ""}, {"mine", bob}, {"min", ""}} {
				_, err := s.KV().values(other[0], other[1]).Set(t.Context(), "a", json.RawMessage(`"hunter2"`), 0)
				require.NoError(t, err)
			}
			r := s.call(alice, "mine", `{}`)
			require.NotContains(t, string(r.Value), "hunter2")
			return string(r.Value) + r.Error
		}
	}

	hostile(t, "hostile_kv.txt", []hostileCase{
		{"a key with NUL", use(write, "kv.set", `{"key":"a\u0000b","value":1}`)},
		{"a key that is too long", use(write, "kv.set", `{"key":"`+strings.Repeat("k", 129)+`","value":1}`)},
		{"no key", use(write, "kv.set", `{"key":"","value":1}`)},
		{"a key that leads to another scope", use(write, "kv.get", `{"key":"../other/a"}`)},
		{"a key with a line break at its end", use(write, "kv.get", `{"key":"a\n"}`)},
		{"a key that looks like SQL", use(write, "kv.delete", `{"key":"a' OR '1'='1"}`)},
		{"the name of another scope as a key", use(write, "kv.get", `{"key":"kv:other"}`)},
		{"the key of another plugin", use(write, "kv.get", `{"key":"a"}`)},
		{"the key of another session", use(own, "kv.get", `{"key":"a"}`)},
		{"another session by a field", use(own, "kv.get", `{"key":"a","session":"bob"}`)},
		{"another plugin by a field", use(write, "kv.get", `{"key":"a","plugin":"other"}`)},
		{"a list of another plugin's keys", use(write, "kv.list", `{"prefix":"kv:"}`)},
		{"a prefix with a wild card", use(write, "kv.list", `{"prefix":"%"}`)},
		{"a forged cursor", use(write, "kv.list", `{"after":"\u0000\uffff' --"}`)},
		{"a cursor of 10,000 characters", use(write, "kv.list", `{"after":"`+strings.Repeat("z", 10_000)+`"}`)},
		{"a value that is too large", hugeValue},
		{"a value that is not JSON", use(write, "kv.set", `{"key":"a","value":nope}`)},
		{"no value", use(write, "kv.set", `{"key":"a"}`)},
		{"a repeated field", use(write, "kv.set", `{"key":"a","value":1,"value":2}`)},
		{"a negative version", use(write, "kv.set", `{"key":"a","value":1,"version":-1}`)},
		{"a version that was never", use(write, "kv.set", `{"key":"a","value":1,"version":9223372036854775807}`)},
		{"a time to live in the past", use(write, "kv.set", `{"key":"a","value":1,"ttl_ms":-1}`)},
		{"a time to live beyond all time", use(write, "kv.set", `{"key":"a","value":1,"ttl_ms":9223372036854775807}`)},
		{"writing with a grant to read", use(host.KV{Mode: abi.StoreRead}, "kv.set", `{"key":"a","value":1}`)},
		{"deleting with a grant to read", use(host.KV{Mode: abi.StoreRead}, "kv.delete", `{"key":"a"}`)},
		{"more bytes than are granted", use(host.KV{Mode: abi.StoreWrite, Bytes: 10}, "kv.set", `{"key":"a","value":"0123456789"}`)},
		{"more keys than are granted, at the same time", fullAtOnce},
		{"a stop in the middle of a write", stoppedWrite},
		{"a value that has expired", expired},
	})
}

// fullAtOnce: of writes that race for the last keys of a quota no more get one.
func fullAtOnce(t *testing.T) string {
	s := openKV(t, t.TempDir(), map[string]kvPlugin{"mine": {granted: host.KV{Mode: abi.StoreWrite}, op: "kv.list", request: `{}`}})
	values := background.ValuesIn(s.engine, engine.Scope{Name: kvPrefix + "mine"}, engine.ValueLimit{Count: 3, Bytes: 1 << 20}, abi.MaxKVValue)
	errs := make([]error, 16)
	var writers sync.WaitGroup
	for i := range errs {
		writers.Go(func() { _, errs[i] = values.Set(t.Context(), fmt.Sprint("k", i), json.RawMessage(`1`), 0) })
	}
	writers.Wait()

	refused := 0
	for _, err := range errs {
		var full *engine.LimitError
		if err != nil {
			require.ErrorAs(t, err, &full)
			refused++
		}
	}
	kept, err := values.List(t.Context())
	require.NoError(t, err)
	return fmt.Sprintf("%d kept, %d refused", len(kept), refused)
}

// stoppedWrite: a call that was stopped has written a whole value, or none.
func stoppedWrite(t *testing.T) string {
	s := openKV(t, t.TempDir(), map[string]kvPlugin{"mine": {granted: host.KV{Mode: abi.StoreWrite}, op: "kv.get", request: `{"key":"a"}`}})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	want := `"` + strings.Repeat("x", 100_000) + `"`
	_, err := s.KV().values("mine", "").Set(ctx, "a", json.RawMessage(want), 0)
	found, getErr := s.KV().Get(t.Context(), "mine", "", "a")
	require.Equal(t, err == nil, getErr == nil)
	if getErr == nil {
		require.Equal(t, want, string(found.Value))
	}
	return fmt.Sprintf("%d bytes", len(found.Value))
}

// expired: a value that has expired is missing, and its version does not come back.
func expired(t *testing.T) (got string) {
	synctest.Test(t, func(t *testing.T) {
		s := openKV(t, "", map[string]kvPlugin{"mine": {granted: host.KV{Mode: abi.StoreWrite}, op: "kv.get", request: `{"key":"a"}`}})
		_, err := s.KV().values("mine", "").SetUntil(t.Context(), "a", json.RawMessage(`"hunter2"`), 0, time.Now().Add(time.Minute))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		r := s.call(alice, "mine", `{}`)
		require.NotContains(t, string(r.Value), "hunter2")
		got = string(r.Value)
		require.NoError(t, s.Close(done()))
	})
	return got
}

// hugeValue: a value beyond the bound is refused whole.
func hugeValue(t *testing.T) string {
	s := openKV(t, "", map[string]kvPlugin{"mine": {granted: host.KV{Mode: abi.StoreWrite}, op: "kv.list", request: `{}`}})
	tool, err := s.catalog.Lookup("mine")
	require.NoError(t, err)
	values := s.kvFor(tool, host.Call{}, s.log)
	_, err = values.Set(t.Context(), "a", json.RawMessage(`"`+strings.Repeat("x", abi.MaxKVValue)+`"`), host.AnyVersion, 0)
	require.Error(t, err)
	_, missing := s.KV().Get(t.Context(), "mine", "", "a")
	require.ErrorIs(t, missing, engine.ErrNotFound)
	return err.Error()
}
