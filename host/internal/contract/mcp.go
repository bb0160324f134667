package contract

// MCP is the convention by which an Extism plugin lists its tools in MCP's
// format, as hyper-mcp plugins do.
type MCP string

// The conventions. Empty means none.
const (
	MCPv1 MCP = "hyper-mcp v1" // exports describe and call
	MCPv2 MCP = "hyper-mcp v2" // exports list_tools and call_tool
)

// mcpOf returns the convention of a plugin with these exports.
func mcpOf(functions map[string]bool) MCP {
	switch {
	case functions["describe"] && functions["call"]:
		return MCPv1
	case functions["list_tools"] && functions["call_tool"]:
		return MCPv2
	}
	return ""
}

// ListFunction returns the name of the function that lists the tools.
func (p MCP) ListFunction() string {
	if p == MCPv1 {
		return "describe"
	}
	return "list_tools"
}

// CallFunction returns the name of the function that calls a tool.
func (p MCP) CallFunction() string {
	if p == MCPv1 {
		return "call"
	}
	return "call_tool"
}
