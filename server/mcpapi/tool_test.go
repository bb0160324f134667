package mcpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
)

// addTool does what Run does with a schema that passed checkInput, and returns
// what the SDK panicked with.
func addTool(schema string) (panicked any) {
	defer func() { panicked = recover() }()
	mcp.NewServer(&mcp.Implementation{}, nil).AddTool(&mcp.Tool{Name: "t", InputSchema: json.RawMessage(schema)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, nil })
	return nil
}

func TestCheckInput(t *testing.T) {
	for _, test := range []struct {
		schema string
		want   string // part of the error; empty if the schema is fine
	}{
		{`{"type":"object"}`, ""},
		{`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"X-A"},"b":{"type":"integer","x-mcp-header":"X-B"}}}`, ""},
		{`{"type":"object","properties":{"a":{"properties":{"b":{"type":"boolean","x-mcp-header":"B"}}}}}`, ""},
		{`{"type":"object","properties":{"x-mcp-header":{"type":"array"}}}`, ""},
		{`{"type":"object","$defs":{"a":{"x-mcp-header":5}}}`, ""},
		{`{"type":"array"}`, "expected type object"},
		{`{"type":["object","null"]}`, "expected type object"},
		{`true`, "expected type object"},
		{`{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"A"}}}`, "/properties/a/x-mcp-header: expected it on a string"},
		{`{"type":"object","properties":{"a":{"x-mcp-header":"A"}}}`, "/properties/a/x-mcp-header: expected it on a string"},
		{`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":""}}}`, "expected the name of a header"},
		{`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":5}}}`, "expected the name of a header, found 5"},
		{`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"a b"}}}`, "expected the name of a header"},
		{`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`, "/properties/b/x-mcp-header: the header a is taken"},
		{`{"type":"object","properties":{"a":{"properties":{"b":{"x-mcp-header":1}}}}}`, "/properties/a/properties/b/x-mcp-header"},
	} {
		t.Run(test.schema, func(t *testing.T) {
			err := checkInput(json.RawMessage(test.schema))
			if test.want == "" {
				require.NoError(t, err)
				require.Nil(t, addTool(test.schema))
				return
			}
			require.ErrorIs(t, err, errSchema)
			require.ErrorContains(t, err, test.want)
			require.NotNil(t, addTool(test.schema), "the SDK takes what we refuse")
		})
	}
}

func FuzzCheckInput(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"}}}`)
	f.Add(`{"type":"object","Properties":{"a":true,"b":{"X-Mcp-Header":[]}}}`)
	f.Add(`{"type":"object","properties":{"a":{"x-mcp-header":null,"properties":[]}}}`)
	f.Fuzz(func(t *testing.T, schema string) {
		if json.Valid([]byte(schema)) && checkInput(json.RawMessage(schema)) == nil {
			require.Nil(t, addTool(schema))
		}
	})
}

func TestInstructionsAreShort(t *testing.T) {
	var ds []server.Definition
	require.Empty(t, instructions(append(ds, server.Definition{Name: "quick"})))
	for i := range 200 {
		ds = append(ds, server.Definition{Name: fmt.Sprintf("tool_with_quite_a_long_name_%03d", i), SupportsBackground: true})
	}
	text := instructions(ds)
	require.Less(t, len(text), 1200)
	require.True(t, strings.HasSuffix(text, "tool_with_quite_a_long_name_019, and others."), text)
}
