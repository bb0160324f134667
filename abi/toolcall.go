package abi

import "encoding/json"

// ToolAnswer is the response of the operation tool.call: the outcome of calling
// another tool.
type ToolAnswer struct {
	Kind       Kind            `json:"kind"`
	Value      json.RawMessage `json:"value,omitempty"` // the tool's result; only on success
	Content    []Block         `json:"content,omitempty"`
	Error      string          `json:"error,omitempty"` // error text; set unless Kind is Success
	Limit      Limit           `json:"limit,omitempty"` // the limit that the tool reached
	Connection *Connection     `json:"connection,omitempty"`
}

// FoundTools is the response of the operation tool.search: tools that match the query,
// best match first.
type FoundTools struct {
	Tools []FoundTool `json:"tools"`
	More  int         `json:"more"` // number of other matches
}

// FoundTool is a tool that a plugin may call.
type FoundTool struct {
	Name        string `json:"name"`        // name by which tool.call calls the tool
	Declaration string `json:"declaration"` // declaration of a TypeScript method
	Description string `json:"description"`
}

// EveryTool, in the needs and grants of a plugin, means all tools that the plugin's
// caller may call itself.
const EveryTool = "*"

// Limits on nested calls.
const (
	MaxToolDepth = 8       // levels of nested calls, not counting the first call
	MaxToolCalls = 1000    // total number of calls below the first, including refused ones
	MaxToolArgs  = 8 << 20 // bytes of the arguments of one call
)
