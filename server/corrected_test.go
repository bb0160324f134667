package server

import (
	"encoding/json"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/server/audit"
)

// TestCorrectedArguments: arguments as clients and models write them reach a tool as it
// declares them, in calls and runs, and the audit log says which they were.
func TestCorrectedArguments(t *testing.T) {
	dir := t.TempDir()
	m := plugintest.Manifest("echo")
	m.Tools[0].Hints.SupportsBackground = true
	m.Tools[0].InputSchema = json.RawMessage(`{"type":"object","required":["n"],"properties":{"n":{"type":"integer"},"text":{"type":"string"},"at":{"type":"object"}},"additionalProperties":false}`)
	p := plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Echo()}
	s := openFolder(t, Config{AuditDir: dir}, fstest.MapFS{"echo.wasm": {Data: p.Wasm()}})

	r := s.call(alice, "echo", `{"n":"5","text":null,"at":"{\"x\":1}"}`)
	require.Equal(t, `{"n":5,"at":{"x":1}}`, string(r.Value))
	require.Equal(t, `{"n":5,"text":"6"}`, string(s.call(alice, "echo", `{"n":5,"text":"6"}`).Value))
	require.Contains(t, s.refused(alice, "echo", `{"n":"five"}`), "/n: expected integer, found string")
	require.Contains(t, s.refused(alice, "echo", `{"n":null}`), "/n: expected integer, found null")

	id := s.spawn(alice, "echo", `{"n":"7"}`)
	require.Equal(t, map[string]any{"n": 7.0}, s.check(alice, id, `,"wait_seconds":60`)["result"])
	require.NoError(t, s.Close(done()))
	events, err := audit.Read(dir, audit.Query{Kinds: []audit.Kind{audit.Call}})
	require.NoError(t, err)
	var actions []string
	for _, e := range events {
		actions = append(actions, e.Action)
	}
	require.Contains(t, actions, "corrected")
	require.Equal(t, "corrected", actions[len(actions)-1], "the first call")
}
