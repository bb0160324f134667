package abi

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Kind is how a call ended.
type Kind string

// The kinds.
const (
	Success            Kind = "success"
	ToolError          Kind = "tool_error"          // the tool failed; the model can react
	Internal           Kind = "internal"            // a fault of the plugin or the host; details are for the operator
	ConnectionRequired Kind = "connection_required" // the user has to connect something first; neither success nor error
	LimitReached       Kind = "limit"               // see Result.Limit
	CanceledKind       Kind = "canceled"            // stopped before there was a result
)

// Limit names what a call ran out of.
type Limit string

// The limits.
const (
	LimitFuel   Limit = "fuel"
	LimitMemory Limit = "memory"
	LimitTime   Limit = "time"
	LimitOutput Limit = "output"
)

// InternalMessage is all that an agent sees of an internal error. The cause goes
// to the operator's log.
const InternalMessage = "An internal error occurred while executing the tool"

// Result is the outcome of one call. Agents, the command line with --json and all
// protocols show it.
type Result struct {
	Kind       Kind            `json:"kind"`
	Value      json.RawMessage `json:"value,omitempty"`   // the tool's answer, on success
	Content    []Block         `json:"content,omitempty"` // further blocks of the answer, in the order they were written
	Error      string          `json:"error,omitempty"`   // for the agent; set unless Success
	Limit      Limit           `json:"limit,omitempty"`
	Connection *Connection     `json:"connection,omitempty"`
	ExitCode   *int            `json:"exit_code,omitempty"` // of a WASI command
	Usage      Usage           `json:"usage"`
}

// IsSuccess reports whether the call succeeded.
func (r Result) IsSuccess() bool { return r.Kind == Success }

// IsError reports whether the call failed. A call that needs a connection
// first has neither succeeded nor failed.
func (r Result) IsError() bool { return r.Kind != Success && r.Kind != ConnectionRequired }

// Usage is what a call cost.
type Usage struct {
	Fuel        int64         `json:"fuel"`         // units, exact and the same on every machine
	Wall        time.Duration `json:"wall_ns"`      // from the start of the instance to its end
	MemoryPeak  int64         `json:"memory_peak"`  // bytes of linear memory
	OutputBytes int64         `json:"output_bytes"` // bytes written to all streams
}

// Block is one piece of content. Type says which fields are set.
type Block struct {
	Type     string `json:"type"`               // text, image, audio, resource or resource_link
	Text     string `json:"text,omitempty"`     // of text and resource
	Data     []byte `json:"data,omitempty"`     // of image and audio, base64 in JSON
	MIMEType string `json:"mimeType,omitempty"` // of image, audio, resource and resource_link
	URI      string `json:"uri,omitempty"`      // of resource and resource_link
	Name     string `json:"name,omitempty"`     // of resource_link
}

// ErrContent is matched by the error for an invalid content block.
var ErrContent = errors.New("not a content block")

// DecodeBlock reads a content block strictly. Its errors match [ErrContent].
func DecodeBlock(data []byte) (Block, error) {
	var b Block
	if ps := decodeStrict(data, &b); len(ps) > 0 {
		return Block{}, fmt.Errorf("%w: %s", ErrContent, ps[0])
	}

	want := map[string]bool{ // which fields the type needs; the others must be empty
		"text": b.Text != "", "data": len(b.Data) > 0, "mimeType": b.MIMEType != "", "uri": b.URI != "", "name": b.Name != "",
	}
	needs := map[string][]string{
		"text": {"text"}, "image": {"data", "mimeType"}, "audio": {"data", "mimeType"}, "resource_link": {"uri", "name"}, "resource": {"text", "uri"},
	}[b.Type]
	if needs == nil {
		return Block{}, fmt.Errorf("%w: unknown type %q, expected text, image, audio, resource or resource_link", ErrContent, b.Type)
	}

	for _, name := range needs {
		if !want[name] && name != "text" { // a text may be empty
			return Block{}, fmt.Errorf("%w: a block of type %s needs %s", ErrContent, b.Type, name)
		}
		delete(want, name)
	}

	if b.Type == "resource_link" || b.Type == "resource" {
		delete(want, "mimeType")
	}

	for _, name := range []string{"text", "data", "mimeType", "uri", "name"} {
		if want[name] {
			return Block{}, fmt.Errorf("%w: a block of type %s has no %s", ErrContent, b.Type, name)
		}
	}

	return b, nil
}

// Connection says what the user has to connect before the tool can work.
type Connection struct {
	Provider string `json:"provider"`
	Subject  string `json:"subject,omitempty"`
	SetupURL string `json:"setup_url,omitempty"`
}

// ErrConnection is matched by the error for an invalid connection.
var ErrConnection = errors.New("not a connection")

// DecodeConnection reads a connection strictly. Its errors match [ErrConnection].
func DecodeConnection(data []byte) (*Connection, error) {
	var c Connection
	if ps := decodeStrict(data, &c); len(ps) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrConnection, ps[0])
	}
	if c.Provider == "" {
		return nil, fmt.Errorf("%w: provider is empty", ErrConnection)
	}
	return &c, nil
}
