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

// FoundTools is the response of the operation tool.search: tools that have words of the
// query, the best first.
type FoundTools struct {
	Tools []FoundTool `json:"tools"`
	More  int         `json:"more"` // tools that were found and are not among them
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
	MaxToolDepth = 8       // calls that wait for each other in turn, without the first
	MaxToolCalls = 1000    // calls that begin with one call together, refused ones included
	MaxToolArgs  = 8 << 20 // bytes of the arguments of one
)
