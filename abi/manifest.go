package abi

import (
	"encoding/json"
	"slices"
)

// Limits of a manifest. A manifest that exceeds one is refused.
const (
	MaxManifest    = 1 << 20 // bytes of the whole document
	MaxSchema      = 1 << 16 // bytes of one input or output schema
	MaxTools       = 128     // tools of a plugin
	MaxDescription = 4096    // characters of one description; each costs tokens in every model call
	MaxAgentName   = 40      // characters of a name for agents, see AgentName
	MaxSecretName  = 64      // characters of the name of a secret
	MaxNeeds       = 1000    // needs of a plugin and its tools, counting each entry of a list
)

// MaxSessionValue is the maximum size of a session value, in bytes of JSON.
const MaxSessionValue = 64 << 10

// MaxKVValue is the maximum size of a value in a key-value store, in bytes of JSON.
const MaxKVValue = 256 << 10

// Manifest describes a plugin and its tools. Its limits and needs are requests: the
// operator grants, reduces or refuses them.
type Manifest struct {
	ABI         string   `json:"abi"`  // always Version
	Name        string   `json:"name"` // [a-z][a-z0-9_]{0,31}
	Version     string   `json:"version"`
	Description string   `json:"description"`
	Homepage    string   `json:"homepage,omitempty"`
	License     string   `json:"license,omitempty"`
	Authors     []string `json:"authors,omitempty"`
	Tools       []Tool   `json:"tools"`
	Needs       Needs    `json:"needs,omitzero"`
	// HostFunctions replaces host functions that an Extism plugin imports: it maps
	// MODULE.FUNCTION to the agent name of a tool. Needs.Tools must cover these tools.
	HostFunctions map[string]string `json:"host_functions,omitempty"`
	// Requires names the features of the contract that the plugin cannot work without,
	// see [Features]. A host that lacks one refuses the plugin and names the feature.
	Requires []string `json:"requires,omitempty"`
	// ConfigSchema describes the settings that the operator may give the plugin: a JSON
	// Schema 2020-12 of an object. Every setting is given as a string, which contains
	// JSON if the setting has another type.
	ConfigSchema json.RawMessage `json:"config_schema,omitempty"`
}

// Tool is one thing a plugin can do.
type Tool struct {
	Name         string          `json:"name"` // [a-z][a-z0-9_]*
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`            // JSON Schema 2020-12, an object at the root
	OutputSchema json.RawMessage `json:"output_schema,omitempty"` // schema of Result.Value; none allows any value
	Hints        Hints           `json:"hints,omitzero"`
	Approval     Approval        `json:"approval,omitempty"`
	Deferrable   Deferrable      `json:"deferrable,omitempty"`
	Needs        Needs           `json:"needs,omitzero"`   // needs of this tool, in addition to those of the plugin
	Narration    Narration       `json:"narrate,omitzero"` // status texts for a person
	Limits       Limits          `json:"limits,omitzero"`
	Examples     []Example       `json:"examples,omitempty"`
	// For WASI commands: Argv passes each argument as --name value. Command describes the rest.
	Argv    bool    `json:"argv,omitempty"`
	Command Command `json:"command,omitzero"`
	// For Extism plugins: Function is the export that the tool calls, by default the
	// one that has the tool's name. Input is a template for the export's input; nil
	// means all arguments as JSON.
	Function string  `json:"function,omitempty"`
	Input    *string `json:"input,omitempty"`
	// For hyper-mcp plugins: MCPTool is the plugin's own name for the tool, and
	// replaces Function and Input.
	MCPTool string `json:"mcp_tool,omitempty"`
}

// Hints describe the behavior of a tool. A missing hint has the cautious value:
// true for destructive and open_world, false for all others.
type Hints struct {
	SupportsBackground bool        `json:"supports_background,omitempty"` // may be spawned as a background run
	Idempotent         bool        `json:"idempotent,omitempty"`          // repeating a call with the same arguments has no further effect
	Readonly           bool        `json:"readonly,omitempty"`            // changes nothing outside the sandbox
	Destructive        *bool       `json:"destructive,omitempty"`         // may delete or overwrite; nil means true unless Readonly
	OpenWorld          *bool       `json:"open_world,omitempty"`          // interacts with systems outside the host; nil means true
	Messages           bool        `json:"messages,omitempty"`            // its background runs read messages
	LongRunning        bool        `json:"long_running,omitempty"`        // usually takes longer than an agent wants to wait
	Concurrency        Concurrency `json:"concurrency,omitempty"`
	PureInit           *bool       `json:"pure_init,omitempty"` // the instance may be snapshotted after init; nil means true
}

// IsDestructive reports whether the tool may delete or overwrite something.
func (h Hints) IsDestructive() bool {
	if h.Destructive == nil {
		return !h.Readonly
	}
	return *h.Destructive
}

// IsPureInit reports whether an instance may be snapshotted after init.
func (h Hints) IsPureInit() bool { return h.PureInit == nil || *h.PureInit }

// Concurrency says whether calls to a tool may overlap within a session.
type Concurrency string

// The modes. Empty means parallel.
const (
	Parallel Concurrency = "parallel"
	Serial   Concurrency = "serial"
)

// Approval says whether a person must agree to each call.
type Approval string

// The policies. Empty means auto.
const (
	ApprovalAuto     Approval = "auto"
	ApprovalRequired Approval = "required"
)

// Deferrable says whether models may have to search for the tool instead of getting its
// definition.
type Deferrable string

// The values of Deferrable. Empty means automatic.
const (
	DeferAutomatic Deferrable = "automatic" // the operator decides
	DeferNever     Deferrable = "never"     // never, unless the operator names this tool
)

// Limits holds the limits that a tool requests; zero requests the host's default.
// The operator's policy caps them.
type Limits struct {
	Fuel              int64 `json:"fuel,omitempty"`
	MemoryBytes       int64 `json:"memory_bytes,omitempty"`
	TimeoutSeconds    int64 `json:"timeout_seconds,omitempty"`
	ParkAfterSeconds  int64 `json:"park_after_seconds,omitempty"`
	BackgroundSeconds int64 `json:"background_seconds,omitempty"`
	OutputBytes       int64 `json:"output_bytes,omitempty"`
}

// Example is a call with its known answer, for readers, models and tests. Exactly one
// of Result and Error is set.
type Example struct {
	Name   string          `json:"name,omitempty"`
	Args   json.RawMessage `json:"args"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"` // part of the error text
}

// Needs lists the grants that a plugin or a tool requires. The zero Needs requires none.
// A tool is not called until its needs and those of its plugin are granted. A grant
// applies to all tools of the plugin.
type Needs struct {
	Files  []FileNeed `json:"files,omitempty"`
	Env    []string   `json:"env,omitempty"` // names of environment variables
	Clock  bool       `json:"clock,omitempty"`
	Random bool       `json:"random,omitempty"`
	Ask    bool       `json:"ask,omitempty"` // asking the user questions
	// Session is access to the values that the tools of a session share.
	Session StoreMode `json:"session,omitempty"`
	// KV is access to a key-value store of the plugin's own.
	KV StoreMode `json:"kv,omitempty"`
	// Tools lists the other tools that the plugin or tool calls, by the names agents know
	// them by, or [EveryTool].
	Tools []string `json:"tools,omitempty"`
	// HTTP lists the HTTP requests that the plugin or tool makes.
	HTTP []HTTPNeed `json:"http,omitempty"`
	// Secrets names the secrets that the operator must add to those HTTP requests.
	Secrets []string `json:"secrets,omitempty"`
	// Optional lists needs that tools can work without. It has no Optional of its own.
	Optional *Needs `json:"optional,omitempty"`
}

// HTTPNeed describes HTTP requests that a plugin must be able to make.
type HTTPNeed struct {
	// URL is https://HOST[:PORT]/PATH, or http:// for plain HTTP. In HOST, "*.example.com"
	// matches names with one label in place of the "*", and "*" alone matches every public
	// name. A PATH that ends in /* matches everything below it.
	URL     string   `json:"url"`
	Methods []string `json:"methods,omitempty"` // HTTP methods in upper case; empty means GET and HEAD, * means all
}

// StoreMode is a plugin's access to the values of a session, or to its
// key-value store.
type StoreMode string

// The modes.
const (
	StoreRead  StoreMode = "read"
	StoreWrite StoreMode = "write" // read and write
)

// FileNeed is a folder that a plugin needs.
type FileNeed struct {
	Path string   `json:"path"` // absolute path in the sandbox, such as / or /work
	Mode FileMode `json:"mode"`
}

// FileMode is a plugin's access to a folder.
type FileMode string

// The modes.
const (
	FileRead  FileMode = "read"
	FileWrite FileMode = "write" // read and write
)

// With returns the union of two sets of needs. If the modes of a folder or a store
// differ, the result is write.
func (n Needs) With(more Needs) Needs {
	n.Clock, n.Random, n.Ask = n.Clock || more.Clock, n.Random || more.Random, n.Ask || more.Ask
	n.Session, n.KV = max(n.Session, more.Session), max(n.KV, more.KV) // in order: none, read, write
	n.Env, n.Tools, n.Secrets = union(n.Env, more.Env), union(n.Tools, more.Tools), union(n.Secrets, more.Secrets)

	n.Files = slices.Clone(n.Files)
	for _, f := range more.Files {
		i := slices.IndexFunc(n.Files, func(have FileNeed) bool { return have.Path == f.Path })
		if i < 0 {
			n.Files = append(n.Files, f)
			continue
		}
		n.Files[i].Mode = max(n.Files[i].Mode, f.Mode)
	}

	n.HTTP = slices.Clone(n.HTTP)
	for _, h := range more.HTTP {
		if !slices.ContainsFunc(n.HTTP, func(have HTTPNeed) bool { return have.URL == h.URL && slices.Equal(have.Methods, h.Methods) }) {
			n.HTTP = append(n.HTTP, h)
		}
	}

	if more.Optional != nil {
		n.Optional = new(n.Opt().With(*more.Optional))
	}
	return n
}

// Opt returns the optional needs, or the zero Needs if there are none.
func (n Needs) Opt() Needs {
	if n.Optional == nil {
		return Needs{}
	}
	return *n.Optional
}

// All returns the needs, including the optional ones.
func (n Needs) All() Needs {
	all := n.With(n.Opt())
	all.Optional = nil
	return all
}

// union returns the elements of both lists.
func union(a, b []string) []string {
	a = slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}

// NeedsOf returns all needs of a tool: its own, and those of the plugin.
func (m *Manifest) NeedsOf(t *Tool) Needs { return Needs{}.With(m.Needs).With(t.Needs) }

// AllNeeds returns the needs of the plugin and of all its tools.
func (m *Manifest) AllNeeds() Needs {
	all := Needs{}.With(m.Needs)
	for i := range m.Tools {
		all = all.With(m.Tools[i].Needs)
	}
	return all
}

// Lookup returns the tool that has the given name.
func (m *Manifest) Lookup(name string) (*Tool, bool) {
	for i := range m.Tools {
		if m.Tools[i].Name == name {
			return &m.Tools[i], true
		}
	}
	return nil, false
}

// AgentName returns the name by which agents know a tool: plugin_tool, or only the tool's name
// if it equals the plugin's. It has no dots and at most [MaxAgentName] characters because
// clients and model APIs accept no more.
func AgentName(plugin, tool string) string {
	if plugin == tool {
		return tool
	}
	return plugin + "_" + tool
}
