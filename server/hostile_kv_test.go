package server

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server/internal/values"
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
				granted := write
				if other[1] != "" {
					granted = own
				}
				stored := values.Calls{Engine: s.engine}.KV(other[0], granted, host.Call{Session: other[1]})
				_, err := stored.Set(t.Context(), "a", json.RawMessage(`"hunter2"`), 0, 0)
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
	})
}
