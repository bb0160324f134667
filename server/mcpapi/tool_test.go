package mcpapi

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
)

func add(schema string) error {
	return addTool(mcp.NewServer(&mcp.Implementation{}, nil), &mcp.Tool{Name: "t", InputSchema: json.RawMessage(schema)}, newAPI(context.Background(), nil, Config{}).call)
}

// A tool that the SDK does not allow is an error, with the place in its schema.
func TestAddTool(t *testing.T) {
	for _, test := range []struct {
		schema string
		want   string // part of the error; empty if the schema is allowed
	}{
		{`{"type":"object"}`, ""},
		{`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"X-A"},"b":{"type":"integer","x-mcp-header":"X-B"}}}`, ""},
		{`{"type":"object","properties":{"a":{"properties":{"b":{"type":"boolean","x-mcp-header":"B"}}}}}`, ""},
		{`{"type":"object","properties":{"x-mcp-header":{"type":"array"}}}`, ""},
		{`{"type":"object","$defs":{"a":{"x-mcp-header":5}}}`, ""},
		{`{"type":"array"}`, `must have type "object"`},
		{`{"type":["object","null"]}`, `must have type "object"`},
		{`true`, "JSON object"},
		{`{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"A"}}}`, `property "a": x-mcp-header can only be applied to primitive types`},
		{`{"type":"object","properties":{"a":{"x-mcp-header":"A"}}}`, `property "a": x-mcp-header can only be applied`},
		{`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":""}}}`, "must be a non-empty string"},
		{`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":5}}}`, "must be a non-empty string"},
		{`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"a b"}}}`, `property "a": x-mcp-header`},
		{`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`, "duplicate x-mcp-header"},
		{`{"type":"object","properties":{"a":{"properties":{"b":{"x-mcp-header":1}}}}}`, `property "a.b"`},
	} {
		t.Run(test.schema, func(t *testing.T) {
			err := add(test.schema)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "MCP does not allow its definition")
			require.ErrorContains(t, err, test.want)
		})
	}
}

func FuzzAddTool(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"}}}`)
	f.Add(`{"type":"object","Properties":{"a":true,"b":{"X-Mcp-Header":[]}}}`)
	f.Add(`{"type":"object","properties":{"a":{"x-mcp-header":null,"properties":[]}}}`)
	f.Fuzz(func(t *testing.T, schema string) {
		if json.Valid([]byte(schema)) {
			_ = add(schema)
		}
	})
}

func TestInstructionsAreShort(t *testing.T) {
	ds := []server.Definition{{Name: "quick"}}
	require.Empty(t, instructions(ds))
	ds = append(ds, server.Definition{Name: "slow", SupportsBackground: true})
	require.LessOrEqual(t, len(instructions(ds)), 120)
}
