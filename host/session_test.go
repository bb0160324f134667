package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// memoryValues are values in memory, for one call at a time.
type memoryValues struct {
	version int64
	values  map[string]host.Value
	err     error // of each method, if it is set
}

func (m *memoryValues) Get(_ context.Context, key string) (host.Value, error) {
	return m.values[key], m.err
}

func (m *memoryValues) Set(_ context.Context, key string, data json.RawMessage, version int64, _ time.Duration) (int64, error) {
	if version != host.AnyVersion && version != m.values[key].Version {
		return 0, &host.Refusal{Code: abi.CallConflict, Message: "changed"}
	}
	if m.values == nil {
		m.values = map[string]host.Value{}
	}
	m.version++
	m.values[key] = host.Value{Key: key, Version: m.version, Bytes: len(data), Data: data}
	return m.version, m.err
}

func (m *memoryValues) Delete(_ context.Context, key string, version int64) (bool, error) {
	_, there := m.values[key]
	delete(m.values, key)
	return there, m.err
}

func (m *memoryValues) List(_ context.Context, prefix, after string, most int) (all []host.Value, err error) {
	for _, key := range []string{"a", "b"} {
		if v, ok := m.values[key]; ok && strings.HasPrefix(key, prefix) && key > after && len(all) < most {
			all = append(all, v)
		}
	}
	return all, m.err
}

func TestSessionValues(t *testing.T) {
	const (
		read, write = abi.StoreRead, abi.StoreWrite
		wantsKey    = `{"code":"invalid","message":"expected {\"key\": name}"}`
		denied      = `{"code":"denied","message":"writing session values is not granted to this plugin: have the operator grant it, or name it in the plugin's needs as session: write"}`
	)
	there := func() *memoryValues {
		return &memoryValues{values: map[string]host.Value{"a": {Key: "a", Version: 4, Bytes: 2, Data: json.RawMessage(`22`)}}, version: 4}
	}
	for _, c := range []struct {
		name, op, request string
		grant             abi.StoreMode
		values            host.Values
		code              int32 // 0: the length of the response
		response          string
	}{
		{"get", "session.get", `{"key":"a"}`, read, there(), 0, `{"version":4,"value":22}`},
		{"get nothing", "session.get", `{"key":"b"}`, read, there(), 0, `{}`},
		{"list", "session.list", `{}`, read, there(), 0, `{"values":[{"key":"a","version":4,"bytes":2}]}`},
		{"list nothing", "session.list", `{}`, read, &memoryValues{}, 0, `{"values":[]}`},
		{"set", "session.set", `{"key":"a","value":null}`, write, there(), 0, `{"version":5}`},
		{"set, compared", "session.set", `{"key":"a","value":1,"version":4}`, write, there(), 0, `{"version":5}`},
		{"set, changed", "session.set", `{"key":"a","value":1,"version":3}`, write, there(), abi.CallConflict, `{"code":"conflict","message":"changed"}`},
		{"delete", "session.delete", `{"key":"a"}`, write, there(), 0, `{"deleted":true}`},
		{"not granted", "session.get", `{"key":"a"}`, "", there(), abi.CallDenied, `{"code":"denied","message":"session is not granted to this plugin: have the operator grant it, or name it in the plugin's needs"}`},
		{"set, only read", "session.set", `{"key":"a","value":1}`, read, there(), abi.CallDenied, denied},
		{"delete, only read", "session.delete", `{"key":"a"}`, read, there(), abi.CallDenied, denied},
		{"no session", "session.get", `{"key":"a"}`, write, nil, abi.CallDenied, `{"code":"denied","message":"this call has no session"}`},
		{"no key", "session.get", `{}`, read, there(), abi.CallInvalid, wantsKey},
		{"delete with a value", "session.delete", `{"key":"a","value":1}`, write, there(), abi.CallInvalid, `{"code":"invalid","message":"expected {\"key\": name, \"version\": number}, where the version is optional"}`},
		{"a value that expires", "session.set", `{"key":"a","value":1,"ttl_ms":5}`, write, there(), abi.CallInvalid, ""},
		{"a page", "session.list", `{"prefix":"a"}`, read, there(), abi.CallInvalid, `{"code":"invalid","message":"expected {}"}`},
		{"no value", "session.set", `{"key":"a"}`, write, there(), abi.CallInvalid, ""},
		{"unknown field", "session.set", `{"key":"a","value":1,"ttl":2}`, write, there(), abi.CallInvalid, ""},
		{"negative version", "session.set", `{"key":"a","value":1,"version":-1}`, write, there(), abi.CallInvalid, ""},
		{"not UTF-8", "session.set", `{"key":"a","value":"` + "\xff" + `"}`, write, there(), abi.CallInvalid, ""},
		{"not JSON", "session.list", `x`, read, there(), abi.CallInvalid, ""},
		{"a disk that is full", "session.set", `{"key":"a","value":1}`, write, &memoryValues{err: errors.New("no space on /secret")}, abi.CallFailed, `{"code":"failed","message":"the values of the session cannot be reached now"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := run(t, ask(c.op, c.request), host.Call{Services: host.Services{Values: c.values}, Policy: host.Policy{Grant: host.Grant{Session: c.grant}}})
			require.NoError(t, o.err)
			if c.response != "" {
				require.JSONEq(t, c.response, string(o.Value))
			}
			if c.code != 0 {
				require.Equal(t, []int32{c.code}, o.codes())
			} else {
				require.Positive(t, o.codes()[0])
			}
		})
	}
}

// TestKV: the key-value store has the operations of session values, and values that
// expire, and pages.
func TestKV(t *testing.T) {
	const read, write = abi.StoreRead, abi.StoreWrite
	there := func() *memoryValues {
		return &memoryValues{values: map[string]host.Value{
			"a": {Key: "a", Version: 4, Bytes: 2, Data: json.RawMessage(`22`)}, "b": {Key: "b", Version: 3, Bytes: 1, Data: json.RawMessage(`1`)},
		}, version: 4}
	}
	for _, c := range []struct {
		name, op, request string
		grant             abi.StoreMode
		values            host.Values
		code              int32 // 0: the length of the response
		response          string
	}{
		{"get", "kv.get", `{"key":"a"}`, read, there(), 0, `{"version":4,"value":22}`},
		{"list", "kv.list", `{}`, read, there(), 0, `{"values":[{"key":"a","version":4,"bytes":2},{"key":"b","version":3,"bytes":1}]}`},
		{"list by prefix", "kv.list", `{"prefix":"b","after":""}`, read, there(), 0, `{"values":[{"key":"b","version":3,"bytes":1}]}`},
		{"list after", "kv.list", `{"after":"b"}`, read, there(), 0, `{"values":[]}`},
		{"set", "kv.set", `{"key":"a","value":1,"version":4,"ttl_ms":1}`, write, there(), 0, `{"version":5}`},
		{"delete", "kv.delete", `{"key":"a"}`, write, there(), 0, `{"deleted":true}`},
		{"a ttl of nothing", "kv.set", `{"key":"a","value":1,"ttl_ms":0}`, write, there(), abi.CallInvalid, `{"code":"invalid","message":"expected \"ttl_ms\" from 1 to 315360000000"}`},
		{"a ttl of centuries", "kv.set", `{"key":"a","value":1,"ttl_ms":9223372036854775807}`, write, there(), abi.CallInvalid, ""},
		{"list with a key", "kv.list", `{"key":"a"}`, read, there(), abi.CallInvalid, ""},
		{"not granted", "kv.get", `{"key":"a"}`, "", there(), abi.CallDenied, `{"code":"denied","message":"kv is not granted to this plugin: have the operator grant it, or name it in the plugin's needs"}`},
		{"set, only read", "kv.set", `{"key":"a","value":1}`, read, there(), abi.CallDenied, `{"code":"denied","message":"writing to kv is not granted to this plugin: have the operator grant it, or name it in the plugin's needs as kv: write"}`},
		{"delete, only read", "kv.delete", `{"key":"a"}`, read, there(), abi.CallDenied, ""},
		{"no session", "kv.get", `{"key":"a"}`, write, nil, abi.CallDenied, `{"code":"denied","message":"this call has no session, and each session has a key-value store of its own"}`},
		{"a disk that is full", "kv.set", `{"key":"a","value":1}`, write, &memoryValues{err: errors.New("no space on /secret")}, abi.CallFailed, `{"code":"failed","message":"the values of kv cannot be reached now"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := run(t, ask(c.op, c.request), host.Call{Services: host.Services{KV: c.values}, Policy: host.Policy{Grant: host.Grant{KV: host.KV{Mode: c.grant}}}})
			require.NoError(t, o.err)
			if c.response != "" {
				require.JSONEq(t, c.response, string(o.Value))
			}
			if c.code != 0 {
				require.Equal(t, []int32{c.code}, o.codes())
			} else {
				require.Positive(t, o.codes()[0])
			}
		})
	}
}

// TestMay: a call that may have no further effect gets no operation, and nothing is changed.
func TestMay(t *testing.T) {
	kv := &memoryValues{}
	asked := 0
	for n, refusal := range []error{nil, errors.New("the lease has ended")} {
		may := func(ctx context.Context) error { asked++; return errors.Join(ctx.Err(), refusal) }
		o := run(t, ask("kv.set", `{"key":"a","value":1}`), host.Call{
			Services: host.Services{KV: kv, May: may}, Policy: host.Policy{Grant: host.Grant{KV: host.KV{Mode: abi.StoreWrite}}},
		})
		require.NoError(t, o.err)
		if refusal != nil {
			require.JSONEq(t, `{"code":"canceled","message":"the call is being stopped"}`, string(o.Value))
		}
		require.Equal(t, n+1, asked)
		require.Equal(t, int64(1), kv.version, "set once")
	}
}
