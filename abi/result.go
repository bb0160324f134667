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
	Summary    string          `json:"summary,omitempty"` // the tool's own, of its result or its error
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
	CPU         time.Duration `json:"cpu_ns"`       // on a processor of the host, which is more than it computed if other programs use that too
	Wall        time.Duration `json:"wall_ns"`      // from its start to its end
	Wait        time.Duration `json:"wait_ns"`      // of Wall, for a slot or a processor
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

// blockFields says which fields a content block of each type has, and whether they
// are required.
var blockFields = map[string]map[string]bool{
	"text":          {"text": false},
	"image":         {"data": true, "mimeType": true},
	"audio":         {"data": true, "mimeType": true},
	"resource":      {"text": false, "uri": true, "mimeType": false},
	"resource_link": {"uri": true, "name": true, "mimeType": false},
}

// DecodeBlock reads a content block strictly.
func DecodeBlock(data []byte) (Block, error) {
	var b Block
	if ps := decodeStrict(data, &b); len(ps) > 0 {
		return Block{}, fmt.Errorf("not a content block: %s", ps[0])
	}
	fields, known := blockFields[b.Type]
	if !known {
		return Block{}, fmt.Errorf("not a content block: unknown type %q, expected text, image, audio, resource or resource_link", b.Type)
	}

	for _, f := range []struct {
		name string
		set  bool
	}{{"text", b.Text != ""}, {"data", len(b.Data) > 0}, {"mimeType", b.MIMEType != ""}, {"uri", b.URI != ""}, {"name", b.Name != ""}} {
		switch required, allowed := fields[f.name]; {
		case required && !f.set:
			return Block{}, fmt.Errorf("not a content block: a block of type %s needs %s", b.Type, f.name)
		case f.set && !allowed:
			return Block{}, fmt.Errorf("not a content block: a block of type %s has no %s", b.Type, f.name)
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

// DecodeConnection reads a connection strictly.
func DecodeConnection(data []byte) (*Connection, error) {
	var c Connection
	if ps := decodeStrict(data, &c); len(ps) > 0 {
		return nil, fmt.Errorf("not a connection: %s", ps[0])
	}
	if c.Provider == "" {
		return nil, errors.New("not a connection: provider is empty")
	}
	return &c, nil
}
