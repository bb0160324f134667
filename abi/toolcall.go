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

// EveryTool stands for all tools that the caller of a plugin may call itself, in the
// plugin's needs and grants.
const EveryTool = "*"

// Bounds of the calls that tools make of other tools.
const (
	MaxToolDepth = 8       // calls that wait for each other in turn, without the first
	MaxToolCalls = 1000    // calls that begin with one call together, refused ones included
	MaxToolArgs  = 8 << 20 // bytes of the arguments of one
)
