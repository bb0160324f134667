package server

import (
	"encoding/json"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/wire"
)

// openValues opens a Service with plugins that each use the values of the session in
// one way.
func openValues(t *testing.T, dir string) service {
	t.Helper()
	files, grants := fstest.MapFS{}, map[string]plugins.Grant{}
	for name, p := range map[string]struct {
		mode     abi.StoreMode
		readonly bool
		invoke   *plugintest.Program
	}{
		"writer":  {abi.StoreWrite, false, plugintest.Do().Use("session.set", `{"key":"draft","value":{"step":1}}`)},
		"reader":  {abi.StoreRead, false, plugintest.Do().Use("session.get", `{"key":"draft"}`)},
		"lister":  {abi.StoreRead, false, plugintest.Do().Use("session.list", `{}`)},
		"pretend": {abi.StoreWrite, true, plugintest.Do().Use("session.set", `{"key":"draft","value":2}`)},
		"badkey":  {abi.StoreWrite, false, plugintest.Do().Use("session.set", `{"key":"a/b","value":2}`)},
		"nothing": {"", false, plugintest.Do().Use("session.get", `{"key":"draft"}`)},
	} {
		m := plugintest.Manifest(name)
		m.Needs.Session = p.mode
		m.Tools[0].Hints.Readonly, m.Tools[0].Hints.SupportsBackground = p.readonly, true
		files[name+".wasm"] = &fstest.MapFile{Data: plugintest.Plugin{Manifest: m, Invoke: p.invoke}.Wasm()}
		grants[name] = plugins.Grant{Session: p.mode}
	}
	return openFolder(t, Config{DataDir: dir, Grants: grants}, files)
}

// TestSessionValues: the tools of a session share its values as they were granted
// them, in calls and runs, and no other session sees them. They survive a restart and
// end with the session.
func TestSessionValues(t *testing.T) {
	dir := t.TempDir()
	s := openValues(t, dir)
	get := func(session string) string { return string(s.call(session, "reader", `{}`).Value) }
	require.JSONEq(t, `{}`, get(alice))
	require.JSONEq(t, `{"version":1}`, string(s.call(alice, "writer", `{}`).Value))
	require.JSONEq(t, `{"version":1,"value":{"step":1}}`, get(alice))
	require.JSONEq(t, `{"values":[{"key":"draft","version":1,"bytes":10}]}`, string(s.call(alice, "lister", `{}`).Value))
	require.JSONEq(t, `{}`, get(bob))

	run, err := s.Session(alice).Spawn(t.Context(), SpawnRequest{Tool: "writer"})
	require.NoError(t, err)
	require.Equal(t, wire.StatusSucceeded, wire.Status(s.settled(alice, run.TaskID).Status))
	require.JSONEq(t, `{"version":2,"value":{"step":1}}`, get(alice))

	code := func(session, tool string) string {
		var f abi.CallFailure
		require.NoError(t, json.Unmarshal(s.call(session, tool, `{}`).Value, &f))
		return f.Code + ": " + f.Message
	}
	require.Equal(t, "denied: a tool with the hint readonly cannot write session values: drop the hint, or do not write", code(alice, "pretend"))
	require.Equal(t, "denied: session is not granted to this plugin: have the operator grant it, or name it in the plugin's needs", code(alice, "nothing"))
	require.Equal(t, "denied: this call has no session", code("", "reader"))
	require.Equal(t, "invalid: key: expected 1 to 128 letters, digits and . _ : @ -", code(alice, "badkey"))

	stored, err := s.Session(bob).Values().Set(t.Context(), "draft", json.RawMessage(`"of bob"`), 0)
	require.NoError(t, err)
	_, err = s.Session(bob).Values().Set(t.Context(), "draft", json.RawMessage(`1`), stored.Version+1)
	require.Equal(t, wire.CodeConflict, ReasonOf(err).Code)
	require.JSONEq(t, `{"version":1,"value":"of bob"}`, get(bob))

	require.NoError(t, s.Close(done()))
	s = openValues(t, dir)
	require.JSONEq(t, `{"version":2,"value":{"step":1}}`, get(alice))
	require.NoError(t, s.Session(alice).End(t.Context()))
	require.JSONEq(t, `{}`, get(alice))
	require.JSONEq(t, `{"version":1,"value":"of bob"}`, get(bob))
}
