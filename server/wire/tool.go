package wire

import (
	"encoding/json"

	"github.com/toolhost/toolhost/abi"
)

// A Definition describes a tool to a model. Its methods return it in the formats of the
// model APIs.
type Definition struct {
	Name         string          `json:"name"`
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	Plugin       string          `json:"plugin,omitempty"`      // absent for tools of the embedding program and for the agent's own tools
	Unsandboxed  bool            `json:"unsandboxed,omitempty"` // a tool of the embedding program, which has all rights of that program
	Approval     abi.Approval    `json:"approval"`
	Deferrable   abi.Deferrable  `json:"deferrable"`
	Deferred     bool            `json:"deferred,omitempty"` // not listed for models, which find the tool with tools_search
	Annotations  Annotations     `json:"annotations"`
	// SupportsBackground says that spawn_background accepts the tool.
	SupportsBackground bool `json:"supports_background"`
	// ReadsMessages says that runs of the tool read the messages sent to them.
	ReadsMessages bool `json:"reads_messages,omitempty"`
	// MayPark says that a call that takes a long time returns {"type":"background", …}
	// instead of a value that fits OutputSchema.
	MayPark bool `json:"may_park"`
	// Limits are the limits of a call. Absent for the agent's own tools.
	Limits ToolLimits `json:"limits,omitzero"`
}

// ToolLimits are the limits of a call whose caller does not ask for others. Absent limits
// do not apply.
type ToolLimits struct {
	TimeoutSeconds    float64 `json:"timeout_seconds,omitempty"`    // time limit of a call
	BackgroundSeconds float64 `json:"background_seconds,omitempty"` // time limit of a background run without its own deadline
	MemoryBytes       int64   `json:"memory_bytes,omitempty"`       // size of the linear memory
	OutputBytes       int64   `json:"output_bytes,omitempty"`       // the result and all other output together
	ArgsBytes         int64   `json:"args_bytes,omitempty"`         // size of the arguments
	BodyBytes         int64   `json:"body_bytes,omitempty"`         // size of the body of an HTTP request or response of the tool: the largest limit of its grants
}

// Tools is the response body of GET /v1/tools.
type Tools struct {
	Tools []Definition `json:"tools"`
}

// Declarations is the response body of GET /v1/declarations, and the result of
// tools_search: the tools that match a query, best match first.
type Declarations struct {
	Tools []Declaration `json:"tools"`
	More  int           `json:"more"`           // number of further matches
	Hint  string        `json:"hint,omitempty"` // what to do if nothing matches
}

// A Declaration is a tool as a TypeScript declaration.
type Declaration struct {
	Name        string `json:"name"`
	Declaration string `json:"declaration"` // a method, without the description
	Description string `json:"description"`
}

// Annotations are statements about what a call may do, in MCP's terms. They combine the plugin's hints
// with what the grants permit: a tool that declares itself readonly gets no writable
// folder, and a tool without a network grant is not open to the outside world.
type Annotations struct {
	ReadOnly    bool `json:"readOnlyHint"`
	Destructive bool `json:"destructiveHint"`
	Idempotent  bool `json:"idempotentHint"`
	OpenWorld   bool `json:"openWorldHint"`
}

// Anthropic returns the tool for the Messages API: an element of "tools".
func (d Definition) Anthropic() json.RawMessage {
	return shape(struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"input_schema"`
	}{d.Name, d.Description, d.InputSchema})
}

// OpenAI returns the tool for the Chat Completions API: an element of "tools".
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

// OpenAIResponses returns the tool for the Responses API: an element of "tools".
func (d Definition) OpenAIResponses() json.RawMessage {
	return shape(struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      bool            `json:"strict"` // false: strict schemas have no optional properties
	}{"function", d.Name, d.Description, d.InputSchema, false})
}

// Gemini returns the tool for the Gemini API: an element of "functionDeclarations".
func (d Definition) Gemini() json.RawMessage {
	return shape(struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parametersJsonSchema"`
	}{d.Name, d.Description, d.InputSchema})
}

// MCP returns the tool for a result of tools/list: an element of "tools".
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
	data, _ := json.Marshal(v) // cannot fail: strings, and schemas that were parsed before
	return data
}

// A Plugin is a loaded plugin file. It lists the names of granted variables and settings,
// but not their values.
type Plugin struct {
	Name        string       `json:"name"`
	Version     string       `json:"version"`
	Description string       `json:"description,omitempty"`
	File        string       `json:"file"`
	Digest      string       `json:"digest"`           // SHA-256; empty if the file cannot be read
	Locked      bool         `json:"locked,omitempty"` // the file matches toolhost.lock
	Signer      string       `json:"signer,omitempty"` // the signer, described for people; absent if no trusted signer signed the file
	Needs       []string     `json:"needs"`            // needs that the plugin declares; optional needs and needs of a single tool are marked
	Grants      []string     `json:"grants"`
	Missing     []string     `json:"missing_grants,omitempty"` // grants that the plugin or one of its tools needs, but does not have
	Folders     []Folder     `json:"folders,omitempty"`        // granted folders
	Tools       []PluginTool `json:"tools"`
}

// A Folder is a folder of the host that a plugin was granted.
type Folder struct {
	Dir  string       `json:"dir"`  // path on the host
	Path string       `json:"path"` // path that the plugin sees
	Mode abi.FileMode `json:"mode"`
}

// A PluginTool is a tool of a plugin, as shown to the operator.
type PluginTool struct {
	Name        string       `json:"name"` // name that agents see
	Title       string       `json:"title,omitempty"`
	Description string       `json:"description"`
	Missing     []string     `json:"missing_grants,omitempty"` // grants that the tool needs, but does not have: calls are refused
	Approval    abi.Approval `json:"approval,omitempty"`
	Deferred    bool         `json:"deferred,omitempty"` // not listed for models, which find the tool with tools_search
	Hints       abi.Hints    `json:"hints"`
	Annotations Annotations  `json:"annotations"`
}

// A FileProblem needs the operator's attention: a plugin file that could not be loaded, a
// plugin that lacks grants, or damaged stored data.
type FileProblem struct {
	File  string `json:"file"`
	Error string `json:"error"`
}
