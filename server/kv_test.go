package server

import (
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
)

// kvPlugin is a plugin with one tool that makes one request of its key-value store.
type kvPlugin struct {
	granted     host.KV
	op, request string
	readonly    bool
}

func openKV(t *testing.T, dir string, all map[string]kvPlugin) service {
	t.Helper()
	files, grants := fstest.MapFS{}, map[string]plugins.Grant{}
	for name, p := range all {
		m := plugintest.Manifest(name)
		m.Needs.KV, m.Tools[0].Hints.Readonly = p.granted.Mode, p.readonly
		files[name+".wasm"] = &fstest.MapFile{Data: plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Use(p.op, p.request)}.Wasm()}
		grants[name] = plugins.Grant{KV: p.granted}
	}
	return openFolder(t, Config{DataDir: dir, Grants: grants}, files)
}

// TestKV: a plugin finds what it stored, in other sessions and after a restart, and no
// other plugin does. A store of a session ends with it.
func TestKV(t *testing.T) {
	dir := t.TempDir()
	shared, own := host.KV{Mode: abi.StoreWrite}, host.KV{Mode: abi.StoreWrite, Scope: host.KVSession}
	all := map[string]kvPlugin{
		"shared":  {granted: shared, op: "kv.set", request: `{"key":"a","value":{"n":1}}`},
		"own":     {granted: own, op: "kv.set", request: `{"key":"a","value":2}`},
		"other":   {granted: shared, op: "kv.list", request: `{}`},
		"pretend": {granted: shared, op: "kv.set", request: `{"key":"a","value":1}`, readonly: true},
		"badkey":  {granted: shared, op: "kv.set", request: `{"key":"a/b","value":2}`},
		"badlist": {granted: shared, op: "kv.list", request: `{"prefix":"ä"}`},
	}
	s := openKV(t, dir, all)
	value := func(session, tool string) string { return string(s.call(session, tool, `{}`).Value) }
	require.JSONEq(t, `{"version":1}`, value(alice, "shared"))
	require.JSONEq(t, `{"version":2}`, value(bob, "shared"))
	require.JSONEq(t, `{"version":3}`, value("", "shared"), "a call without a session has it too")
	require.JSONEq(t, `{"version":1}`, value(alice, "own"))
	require.JSONEq(t, `{"version":1}`, value(bob, "own"))
	require.JSONEq(t, `{"values":[]}`, value(alice, "other"))
	require.Contains(t, value("", "own"), "this call has no session")
	require.Contains(t, value(alice, "pretend"), "hint readonly")
	require.Contains(t, value(alice, "badkey"), "key: expected 1 to 128 letters")
	require.Contains(t, value(alice, "badlist"), "prefix: expected up to 128 letters")

	stores := func() (text []string) {
		found, err := s.KV().List(t.Context())
		require.NoError(t, err)
		for _, k := range found.Stores {
			text = append(text, fmt.Sprintf("%s/%s %d %d", k.Session, k.Plugin, k.Keys, k.Bytes))
		}
		return text
	}
	require.Equal(t, []string{"/shared 1 8", "alice/own 1 2", "bob/own 1 2"}, stores())
	require.NoError(t, s.Close(done()))

	s = openKV(t, dir, all)
	require.NoError(t, s.Session(alice).End(t.Context()))
	require.Equal(t, []string{"/shared 1 8", "bob/own 1 2"}, stores())
	v, err := s.KV().Get(t.Context(), "shared", "", "a")
	require.NoError(t, err)
	require.JSONEq(t, `{"n":1}`, string(v.Value))

	dry := WithDryRun(t.Context())
	require.Contains(t, string(s.call(alice, "shared", `{}`).Value), `"version":4`)
	require.NoError(t, s.KV().Clear(dry, "shared", ""))
	deleted, err := s.KV().Delete(dry, "own", bob, "a")
	require.NoError(t, err)
	require.True(t, deleted)
	require.Len(t, stores(), 2)
	deleted, err = s.KV().Delete(t.Context(), "own", bob, "a")
	require.NoError(t, err)
	require.True(t, deleted)
	require.NoError(t, s.KV().Clear(t.Context(), "shared", ""))
	require.Equal(t, []string{"bob/own 0 0"}, stores())
}
