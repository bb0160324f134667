package server

import (
	"cmp"
	"encoding/json"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/plugins"
)

// Definition is a tool as it is told to a model. The methods give the shapes
// of the model APIs.
type Definition struct {
	Name         string          `json:"name"`
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	Plugin       string          `json:"plugin,omitempty"` // empty for the agent's own tools
	Approval     abi.Approval    `json:"approval"`
	Deferrable   abi.Deferrable  `json:"deferrable"`
	Annotations  Annotations     `json:"annotations"`
	// SupportsBackground says that spawn_background takes the tool.
	SupportsBackground bool `json:"supports_background"`
	// MayPark says that a call that takes long is answered with
	// {"type":"background", …} in place of what OutputSchema describes.
	MayPark bool `json:"may_park"`
}

// Annotations say what a call may do, as MCP names it. They are not what the
// plugin claims but what its claims and the operator's grants leave possible:
// a tool that says it is readonly gets no folder it could write to, and one
// without a grant to reach the world cannot be open to it.
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
	data, _ := json.Marshal(v) // strings and schemas that were parsed: it cannot fail
	return data
}

// Definitions returns all tools a session may call: those of the plugins,
// sorted by name, then the agent's own three, if there is a tool to spawn or
// that may be parked; without it, where there were runs, those to check and to
// stop them. [Service.ToolsChanged] tells when to ask again.
// A plugin that was not granted all it needs is left out: a model is not told
// of tools that would refuse it.
func (s *Service) Definitions(session string) []Definition {
	var ds []Definition
	tools := s.registry.Tools()
	for _, t := range tools {
		if len(t.Plugin.Missing) == 0 {
			ds = append(ds, s.define(t))
		}
	}
	for _, a := range s.offered(tools) {
		ds = append(ds, a.definition)
	}
	return ds
}

func (s *Service) define(t *plugins.Tool) Definition {
	return Definition{
		Name: t.Name, Title: t.Tool.Title, Description: t.Tool.Description,
		InputSchema: t.Tool.InputSchema, OutputSchema: t.Tool.OutputSchema,
		Plugin:             t.Plugin.Manifest.Name,
		Approval:           cmp.Or(t.Tool.Approval, abi.ApprovalAuto),
		Deferrable:         cmp.Or(t.Tool.Deferrable, abi.DeferAutomatic),
		Annotations:        Annotate(t),
		SupportsBackground: t.Tool.Hints.SupportsBackground,
		MayPark:            s.mayPark(t),
	}
}

// Annotate returns what a call of a plugin's tool may do.
func Annotate(t *plugins.Tool) Annotations {
	hints := t.Tool.Hints
	writes := t.Plugin.Grant.Writes() && !hints.Readonly
	return Annotations{
		ReadOnly:    !writes,
		Destructive: writes && hints.IsDestructive(),
		Idempotent:  hints.Idempotent || hints.Readonly,
		OpenWorld:   false, // this host grants no plugin a way out
	}
}
