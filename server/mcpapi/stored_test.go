package mcpapi_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

// A model gets the beginning of a large result, and reads all of it with resources/read:
// after progress too, and beside the whole value where the tool has an output schema.
func TestLargeResultIsRead(t *testing.T) {
	schema := plugintest.Manifest("schema")
	schema.Tools[0].OutputSchema = json.RawMessage(`{"type":"object"}`)
	files := fstest.MapFS{}
	for name, p := range map[string]plugintest.Plugin{
		"free":   {Manifest: plugintest.Manifest("free"), Invoke: plugintest.Do().Progress("half way").EchoLarge()},
		"schema": {Manifest: schema, Invoke: plugintest.Do().EchoLarge()},
	} {
		files[name+".wasm"] = &fstest.MapFile{Data: p.Wasm()}
	}
	args := json.RawMessage(`{"s":"` + strings.Repeat("x", server.DefaultAnswer) + `"}`)

	for transport, dial := range map[string]func(*testing.T, *server.Service) mcp.Transport{"stdio": stdioTransport, "http": httpTransport} {
		for _, version := range []string{"2025-11-25", "2026-07-28"} {
			t.Run(transport+" "+version, func(t *testing.T) {
				cfg := serviceConfig()
				cfg.Folders = []plugins.Folder{{Path: "zoo", FS: files}}
				c, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), dial(t, open(t, cfg)), &mcp.ClientSessionOptions{ProtocolVersion: version})
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })

				for _, tool := range []string{"free", "schema"} {
					params := &mcp.CallToolParams{Name: tool, Arguments: args}
					params.SetProgressToken("token")
					r, err := c.CallTool(t.Context(), params)
					require.NoError(t, err)
					require.False(t, r.IsError)
					require.Equal(t, tool == "schema", r.StructuredContent != nil, "what has a schema has to fit it")
					require.Len(t, r.Content, 2)
					require.Less(t, len(r.Content[0].(*mcp.TextContent).Text), server.MinAnswer+300)

					link := r.Content[1].(*mcp.ResourceLink)
					read, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: link.URI})
					require.NoError(t, err)
					var kept struct{ Result json.RawMessage }
					require.NoError(t, json.Unmarshal([]byte(read.Contents[0].Text), &kept))
					require.JSONEq(t, string(args), string(kept.Result))
				}
			})
		}
	}
}
