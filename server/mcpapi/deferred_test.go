package mcpapi_test

import (
	"encoding/json"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
)

// TestDeferredTools: clients of both eras, on both transports, are not given deferred
// tools. They find them by search, and call them by name.
func TestDeferredTools(t *testing.T) {
	for transport, dial := range map[string]func(*testing.T, *server.Service) mcp.Transport{"stdio": stdioTransport, "http": httpTransport} {
		for _, version := range []string{"2025-11-25", "2026-07-28"} {
			t.Run(transport+" "+version, func(t *testing.T) {
				cfg := serviceConfig("wordcount", "primes")
				cfg.Listing = map[string]server.Listing{"*": server.ListBySearch, "primes": server.ListDirectly}
				s := open(t, cfg)
				c, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), dial(t, s), &mcp.ClientSessionOptions{ProtocolVersion: version})
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })

				given := names(t, c)
				require.Subset(t, given, []string{"primes", server.ToolsSearch})
				require.NotContains(t, given, "wordcount")

				call := func(name, args string) *mcp.CallToolResult {
					r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
					require.NoError(t, err)
					require.False(t, r.IsError)
					return r
				}
				require.Contains(t, call(server.ToolsSearch, `{"query":"count words"}`).Content[0].(*mcp.TextContent).Text, `"declaration":"wordcount(args: {`)
				require.NotEmpty(t, call("wordcount", `{"text":"a b"}`).Content)
			})
		}
	}
}

// A list without tools is an array: clients refuse null.
func TestNoTools(t *testing.T) {
	c := connect(t, open(t, server.Config{}))
	c.send([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n"))
	c.receive(1)
	c.send([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"tools/list"}` + "\n"))
	require.Contains(t, string(c.receive(1)), `"tools":[]`)
}
