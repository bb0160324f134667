package abi

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind says how a call ended.
type Kind string

// The kinds.
const (
	Success            Kind = "success"
	ToolError          Kind = "tool_error"          // the tool failed; the model can react
	Internal           Kind = "internal"            // the plugin or the host failed; details are for the operator
	ConnectionRequired Kind = "connection_required" // the user has to connect something first; neither success nor error
	LimitReached       Kind = "limit"               // the call reached a limit, see Result.Limit
	CanceledKind       Kind = "canceled"            // stopped before there was a result
)

// Limit is a limit that a call reached.
type Limit string

// The limits.
const (
	LimitFuel   Limit = "fuel"
	LimitMemory Limit = "memory"
	LimitTime   Limit = "time"
	LimitOutput Limit = "output"
)

// InternalMessage is the message of every internal error that an agent sees. The
// cause goes to the operator's log.
const InternalMessage = "An internal error occurred while executing the tool"

// Result is the outcome of one call. Agents, all protocols, and the command line with --json
// show it in this form.
type Result struct {
	Kind       Kind            `json:"kind"`
	Value      json.RawMessage `json:"value,omitempty"`   // the tool's result, on success
	Content    []Block         `json:"content,omitempty"` // content blocks, in the order they were written
	Summary    string          `json:"summary,omitempty"` // the tool's own summary of its result or error
	Error      string          `json:"error,omitempty"`   // error text for the agent; set unless Kind is Success
	Limit      Limit           `json:"limit,omitempty"`
	Connection *Connection     `json:"connection,omitempty"`
	ExitCode   *int            `json:"exit_code,omitempty"` // exit code of a WASI command, else nil
	Usage      Usage           `json:"usage"`
}

// IsSuccess reports whether the call succeeded.
func (r Result) IsSuccess() bool { return r.Kind == Success }

// IsError reports whether the call failed. A call that needs a connection
// first has neither succeeded nor failed.
func (r Result) IsError() bool { return r.Kind != Success && r.Kind != ConnectionRequired }

// Text returns the text of the result for a model: the value, or the error.
func (r Result) Text() string {
	if r.IsSuccess() {
		return string(r.Value)
	}
	return r.Error
}

// Usage is the cost of a call.
type Usage struct {
	Fuel        int64         `json:"fuel"`         // fuel used, in units; exact, and the same on every machine
	CPU         time.Duration `json:"cpu_ns"`       // processor time on the host, including time that the system gave to other programs
	Wall        time.Duration `json:"wall_ns"`      // time from the start to the end of the call
	Wait        time.Duration `json:"wait_ns"`      // part of Wall spent waiting for a slot, a processor, or the compilation of the plugin
	MemoryPeak  int64         `json:"memory_peak"`  // largest size of linear memory, in bytes
	OutputBytes int64         `json:"output_bytes"` // bytes written to all streams

	// StartupFuel is the part of Fuel used to start the plugin up. Each call pays for
	// it, even if it continues from a snapshot. 0 means that starting up does nothing.
	StartupFuel int64 `json:"startup_fuel,omitempty"`
	// Startup is how much of Wall passed until the plugin was ready, if it has
	// StartupFuel. It is short for a call that continues from a snapshot.
	Startup time.Duration `json:"startup_ns,omitempty"`
}

// Connection names the account or service that the user must connect before the tool can work.
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
	if strings.ContainsFunc(c.Provider+c.Subject, isControl) {
		return nil, errors.New("not a connection: expected a provider and a subject without control characters")
	}
	if hasUser(c.SetupURL) {
		return nil, errors.New("not a connection: setup_url: a web address may not have a user or password: remove what is before the @")
	}
	if scheme, ok := uriScheme(c.SetupURL); c.SetupURL != "" && (!ok || scheme != "https" && scheme != "http") {
		return nil, fmt.Errorf("not a connection: setup_url: expected a URL of http or https, found %.80q", c.SetupURL)
	}
	return &c, nil
}
