package mcpapi

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

func FuzzParseFileURI(f *testing.F) {
	f.Add(fileURI("bg_a", wire.OutputLog, 0))
	f.Add(fileURI("bg_a", wire.ResultJSON, 1<<40))
	f.Add("toolhost://runs/a/b/result.json?offset=-1")
	f.Fuzz(func(t *testing.T, uri string) {
		id, name, offset, ok := parseFileURI(uri)
		if !ok {
			return
		}
		require.Contains(t, []string{wire.OutputLog, wire.ResultJSON}, name)
		require.NotContains(t, id, "/")
		require.GreaterOrEqual(t, offset, int64(0))
	})
}

// For a result that is too large, the model gets its beginning and learns where to find
// all of it.
func TestExcerpt(t *testing.T) {
	value, err := json.Marshal(strings.Repeat("ü", server.DefaultAnswer))
	require.NoError(t, err)
	r := runResult(wire.Run{TaskID: "bg_a", Result: value}, false, server.DefaultAnswer)
	require.Len(t, r.Content, 2)
	text, err := json.Marshal(r)
	require.NoError(t, err)
	require.Less(t, len(text), 2*previewSize)
	require.True(t, utf8.Valid(text))
	require.True(t, bytes.Contains(text, []byte(`"uri":"toolhost://runs/bg_a/result.json"`)))

	r = runResult(wire.Run{TaskID: "bg_a", Result: value}, true, server.DefaultAnswer)
	require.Equal(t, json.RawMessage(value), r.StructuredContent, "what has a schema has to fit it")
	require.Len(t, r.Content, 2, "the beginning, and a link to the file")
	require.Less(t, len(r.Content[0].(*mcp.TextContent).Text), 2*previewSize)
}

// Content that a run keeps beside its value comes back as content.
func TestRunResultWithContent(t *testing.T) {
	beside := []abi.Block{{Type: "text", Text: "beside"}}
	r := runResult(wire.Run{Result: json.RawMessage(`1`), Content: beside}, false, server.DefaultAnswer)
	require.Equal(t, []mcp.Content{&mcp.TextContent{Text: `{"result":1}`}, &mcp.TextContent{Text: "beside"}}, r.Content)
	r = runResult(wire.Run{Error: &wire.RunError{Kind: wire.KindToolError, Message: "no"}, Content: beside}, false, server.DefaultAnswer)
	require.True(t, r.IsError)
	require.Equal(t, []mcp.Content{&mcp.TextContent{Text: "no"}, &mcp.TextContent{Text: "beside"}}, r.Content)
	const value = `{"value":1,"content":[{"type":"text","text":"beside"}]}`
	r = runResult(wire.Run{Result: json.RawMessage(value)}, false, server.DefaultAnswer)
	require.Equal(t, []mcp.Content{&mcp.TextContent{Text: value}}, r.Content, "a value is not read as content")
	large := json.RawMessage(`"` + strings.Repeat("x", server.DefaultAnswer) + `"`)
	r = runResult(wire.Run{TaskID: "bg_a", Result: large, Content: beside}, false, server.DefaultAnswer)
	require.Len(t, r.Content, 3)
	require.Equal(t, fileLink("bg_a", wire.ResultJSON), r.Content[1])
	require.Equal(t, &mcp.TextContent{Text: "beside"}, r.Content[2], "it is shown though the value is not")
}

// The agent's own tools name files by their paths on the host: a client gets
// links it can follow.
func TestLinks(t *testing.T) {
	r := abi.Result{Kind: abi.Success, Value: json.RawMessage(`{"tasks":[{"task_id":"bg_a","log_path":"/x/output.log"},{"task_id":"bg_b","result_path":"/x/result.json"}]}`)}
	out := toResult(r, false)
	addLinks(server.CheckBackground, r, out)
	require.Equal(t, fileLink("bg_a", wire.OutputLog), out.Content[1])
	require.Equal(t, fileLink("bg_b", wire.ResultJSON), out.Content[2])
	out = toResult(r, false)
	addLinks("another", r, out)
	require.Len(t, out.Content, 1)
}
