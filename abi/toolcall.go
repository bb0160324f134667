package abi

import "encoding/json"

// ToolAnswer is the response of the operation tool.call: how the call of another tool
// ended.
type ToolAnswer struct {
	Kind       Kind            `json:"kind"`
	Value      json.RawMessage `json:"value,omitempty"` // on success
	Content    []Block         `json:"content,omitempty"`
	Error      string          `json:"error,omitempty"` // unless it is a success
	Limit      Limit           `json:"limit,omitempty"` // that the tool reached
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
	Name        string `json:"name"`        // as tool.call takes it
	Declaration string `json:"declaration"` // a method in TypeScript
	Description string `json:"description"`
}

// EveryTool stands for all tools that the caller of a plugin may call itself, in the
// plugin's needs and grants.
const EveryTool = "*"

// Bounds of the calls that tools make of other tools.
const (
	MaxToolDepth = 8       // nested calls, not counting the first
	MaxToolCalls = 1000    // calls below one call in total, refused ones included
	MaxToolArgs  = 8 << 20 // bytes of the arguments of one
)
