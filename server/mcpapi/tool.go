package mcpapi

import (
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/server"
)

// toTool returns a tool as tools/list shows it. It writes all four annotations, because
// MCP assumes the worst of missing ones. It includes an output schema only if that
// describes an object: clients before 2026-07-28 refuse the whole list for any other.
func toTool(d server.Definition) *mcp.Tool {
	a := d.Annotations
	tool := &mcp.Tool{
		Name: d.Name, Title: d.Title, Description: d.Description, InputSchema: d.InputSchema,
		Annotations: &mcp.ToolAnnotations{
			Title:        d.Title, // for revisions before 2025-06-18, and for some later clients
			ReadOnlyHint: a.ReadOnly, DestructiveHint: &a.Destructive, IdempotentHint: a.Idempotent, OpenWorldHint: &a.OpenWorld,
		},
	}

	if d.Unsandboxed {
		tool.Meta = mcp.Meta{"toolhost/unsandboxed": true}
	}

	var output map[string]any // a struct would also match TYPE
	if _ = json.Unmarshal(d.OutputSchema, &output); output["type"] == "object" {
		tool.OutputSchema = d.OutputSchema
	}
	return tool
}

// addTool adds a tool. It returns an error for a tool that MCP does not allow, such as
// one with an invalid x-mcp-header, for which the SDK panics.
func addTool(srv *mcp.Server, tool *mcp.Tool, call mcp.ToolHandler) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("MCP does not allow its definition: %v", v)
		}
	}()
	srv.AddTool(tool, call)
	return nil
}
