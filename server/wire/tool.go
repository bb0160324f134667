package wire

import (
	"encoding/json"

	"github.com/toolhost/toolhost/abi"
)

// Definition is a tool as a model sees it. The methods give the shapes of the
// model APIs.
type Definition struct {
	Name         string          `json:"name"`
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	Plugin       string          `json:"plugin,omitempty"`      // empty for a tool of the program, and for the agent's own tools
	Unsandboxed  bool            `json:"unsandboxed,omitempty"` // a tool of the program that has the server: it may do whatever that may
	Approval     abi.Approval    `json:"approval"`
	Deferrable   abi.Deferrable  `json:"deferrable"`
	Deferred     bool            `json:"deferred,omitempty"` // models find it with tools_search, and are not given it
	Annotations  Annotations     `json:"annotations"`
	// SupportsBackground says that spawn_background takes the tool.
	SupportsBackground bool `json:"supports_background"`
	// ReadsMessages says that its runs read messages that are sent to them.
	ReadsMessages bool `json:"reads_messages,omitempty"`
	// MayPark says that a call that takes long is answered with
	// {"type":"background", …} instead of what OutputSchema describes.
	MayPark bool `json:"may_park"`
	// Limits are what a call may use. The agent's own tools have none.
	Limits ToolLimits `json:"limits,omitzero"`
}

// ToolLimits are what a call of a tool may use, if its caller asks for nothing. An
// absent one does not apply.
type ToolLimits struct {
	TimeoutSeconds    float64 `json:"timeout_seconds,omitempty"`    // of a call
	BackgroundSeconds float64 `json:"background_seconds,omitempty"` // of a background run that names no deadline
	MemoryBytes       int64   `json:"memory_bytes,omitempty"`       // of linear memory
	OutputBytes       int64   `json:"output_bytes,omitempty"`       // of the result and all other output together
	ArgsBytes         int64   `json:"args_bytes,omitempty"`         // of the arguments
	BodyBytes         int64   `json:"body_bytes,omitempty"`         // of the body of an HTTP request that it makes, or of the answer: the largest of its grants
}

// Tools is the answer of GET /v1/tools.
type Tools struct {
	Tools []Definition `json:"tools"`
}

// Declarations are tools that a search has found, the best first: the answer of
// GET /v1/declarations and of tools_search.
type Declarations struct {
	Tools []Declaration `json:"tools"`
	More  int           `json:"more"`           // tools that were found and are not shown
	Hint  string        `json:"hint,omitempty"` // what to do if none was found
}

// A Declaration is a tool in TypeScript.
type Declaration struct {
	Name        string `json:"name"`
	Declaration string `json:"declaration"` // a method, without the description
	Description string `json:"description"`
}

// Annotations say what a call may do, in MCP's terms. They are not what the
// plugin claims, but what its claims and the operator's grants leave possible:
// a tool that says it is readonly gets no folder it could write to, and one
// without a grant to reach the network cannot be open to it.
type Annotations struct {
	ReadOnly    bool `json:"readOnlyHint"`
	Destructive bool `json:"destructiveHint"`
	Idempotent  bool `json:"idempotentHint"`
	OpenWorld   bool `json:"openWorldHint"`
}

// Anthropic is the tool for the Messages API: a member of "tools".
func (d Definition) Anthropic() json.RawMessage {
	return shape(struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"input_schema"`
	}{d.Name, d.Description, d.InputSchema})
}

// OpenAI is the tool for the Chat Completions API: a member of "tools".
func (d Definition) OpenAI() json.RawMessage {
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	return shape(struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}{"function", function{d.Name, d.Description, d.InputSchema}})
}

// MCP is the tool for a result of tools/list: a member of "tools".
func (d Definition) MCP() json.RawMessage {
	return shape(struct {
		Name         string          `json:"name"`
		Title        string          `json:"title,omitempty"`
		Description  string          `json:"description"`
		InputSchema  json.RawMessage `json:"inputSchema"`
		OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
		Annotations  Annotations     `json:"annotations"`
	}{d.Name, d.Title, d.Description, d.InputSchema, d.OutputSchema, d.Annotations})
}

func shape(v any) json.RawMessage {
	data, _ := json.Marshal(v) // strings and schemas that were parsed before: it cannot fail
	return data
}

// A Plugin is a loaded plugin file. Of granted variables and settings it has
// only the names.
type Plugin struct {
	Name        string       `json:"name"`
	Version     string       `json:"version"`
	Description string       `json:"description,omitempty"`
	File        string       `json:"file"`
	Digest      string       `json:"digest"` // SHA-256; empty if the file cannot be read
	Pinned      bool         `json:"pinned,omitempty"`
	Needs       []string     `json:"needs"`
	Grants      []string     `json:"grants"`
	Missing     []string     `json:"missing_grants,omitempty"` // needed and not granted: its tools are refused
	Folders     []Folder     `json:"folders,omitempty"`        // granted, and where they are on the host
	Tools       []PluginTool `json:"tools"`
}

// A Folder is a folder of the host that a plugin was granted.
type Folder struct {
	Dir   string `json:"dir"`  // on the host
	Path  string `json:"path"` // as the plugin sees it
	Write bool   `json:"write,omitempty"`
}

// A PluginTool is a tool of a plugin, as operators see it.
type PluginTool struct {
	Name        string       `json:"name"` // as agents see it
	Title       string       `json:"title,omitempty"`
	Description string       `json:"description"`
	Approval    abi.Approval `json:"approval,omitempty"`
	Deferred    bool         `json:"deferred,omitempty"` // models find it with tools_search, and are not given it
	Hints       abi.Hints    `json:"hints"`
	Annotations Annotations  `json:"annotations"`
}

// A FileProblem is something an operator has to look at: a plugin file that
// could not be loaded, a plugin that lacks grants, or damaged stored data.
type FileProblem struct {
	File  string `json:"file"`
	Error string `json:"error"`
}
