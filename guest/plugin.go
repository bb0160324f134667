package guest

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/typed"
)

// Hints describe the behavior of a tool. A missing hint has the cautious value: true for
// Destructive and OpenWorld, false for all others.
//
//	SupportsBackground bool        may be spawned as a background run
//	Idempotent         bool        calling it again with the same arguments changes nothing more
//	Readonly           bool        changes nothing outside the sandbox: its folders are mounted read-only
//	Destructive        *bool       may delete or overwrite; nil means true unless Readonly
//	OpenWorld          *bool       talks to things outside the host; nil means true
//	LongRunning        bool        usually takes longer than an agent wants to wait
//	Concurrency        Concurrency parallel or serial calls within a session; empty means parallel
//	PureInit           *bool       calls may start from a copy of the state after start-up; nil means true
//	Messages           bool        its background runs read messages that are sent to them
type Hints = abi.Hints

// Limits holds the limits that a tool requests. Zero means the host's default, and
// the operator's maximum caps them.
//
//	Fuel              int64 in units
//	MemoryBytes       int64
//	TimeoutSeconds    int64 for a call
//	ParkAfterSeconds  int64 until a call continues as a background run
//	BackgroundSeconds int64 for a background run
//	OutputBytes       int64 written to all streams
type Limits = abi.Limits

// Needs lists the grants that a plugin requires before any of its tools is called, or that
// a tool requires before it is called itself. Call.Has tells which optional ones are
// granted.
//
//	Files   []FileNeed  folders
//	Env     []string    names of environment variables
//	Clock   bool        the time, and Call.Sleep
//	Random  bool        randomness
//	Ask     bool        Call.Ask
//	Tools   []string    other tools, by the names agents know them by: Call.CallTool
//	Session StoreMode   values that the tools of a session share: read or write
//	KV      StoreMode   a key-value store of the plugin's own: read or write
//	HTTP    []HTTPNeed  requests over HTTP, see package web
//	Secrets []string    secrets in those requests, by their names: Call.SecretExists
//	Optional *Needs     what tools can work without: Call.Has
type Needs = abi.Needs

// FileNeed is a folder that the plugin needs.
//
//	Path string   absolute, in the sandbox, such as /work
//	Mode FileMode read or write
type FileNeed = abi.FileNeed

// HTTPNeed describes HTTP requests that a plugin must be able to make.
//
//	URL     string   https://HOST/PATH: the * in *.example.com stands for exactly one label, and a final /* for everything below
//	Methods []string in upper case; none means GET and HEAD, * means all
type HTTPNeed = abi.HTTPNeed

// Narration holds the status texts that a person sees: see [Say].
//
//	Started  Text
//	Finished Text
//	Failed   Text
type Narration = abi.Narration

// Text is a status text, or one for each locale.
//
//	Default  string            used if there is none for the locale
//	ByLocale map[string]string by language tag, such as de-CH
type Text = abi.Text

// Say makes a status text of a [Narration], in which {name} stands for the argument of
// that name. Use [Text] for a text in several locales.
func Say(template string) Text { return Text{Default: template} }

// Plugin is a plugin and its tools. It must not change once it is served.
type Plugin struct {
	Name        string // [a-z][a-z0-9_]{0,31}
	Version     string // semantic version
	Description string
	Homepage    string
	License     string // SPDX expression
	Authors     []string
	Tools       []Tool
	Needs       Needs // needs of all tools; the zero Needs requires no grants
	// Requires names features of the contract that the plugin cannot work without, such
	// as "kv". A host that lacks one refuses the plugin and says so. See the contract.
	Requires []string
	// Config is a struct that has a field for each setting of the plugin, with the same
	// tags as arguments: the host shows and checks what the operator sets. Its values are
	// ignored. Nil allows any settings. See [Call.Config].
	Config any
}

// Tool is one tool of a plugin. Name, Description and Handler are required; the other
// fields have the contract's defaults.
type Tool struct {
	Name        string // [a-z][a-z0-9_]*; a tool with its plugin's name is known by that name alone
	Title       string
	Description string // all that a model knows about the tool
	Handler     Handler
	Hints       Hints
	Needs       Needs // needs of this tool, in addition to those of the plugin
	Approval    abi.Approval
	Deferrable  abi.Deferrable
	Narrate     Narration // status texts for a person; see [Say]
	Limits      Limits
	Examples    []Example
}

// Example is a call with its known answer. Exactly one of Result and Error is
// set.
type Example struct {
	Name   string
	Args   any    // usually a value of the handler's argument type
	Result any    // usually a value of the handler's result type
	Error  string // part of the error text
}

// Manifest returns the manifest of the plugin, checked against the contract.
func (p *Plugin) Manifest() (*abi.Manifest, error) {
	doc, err := p.document()
	if err != nil {
		return nil, err
	}
	return abi.DecodeManifest(doc)
}

// document returns the manifest as JSON, unchecked: the plugin's tests and the host
// check it, and the checks would make every plugin's binary larger.
func (p *Plugin) document() ([]byte, error) {
	m := abi.Manifest{
		ABI: abi.Version, Name: p.Name, Version: p.Version, Description: p.Description,
		Homepage: p.Homepage, License: p.License, Authors: p.Authors, Needs: p.Needs, Requires: p.Requires,
	}
	if p.Config != nil {
		var err error
		if m.ConfigSchema, err = typed.Input(reflect.TypeOf(p.Config)); err != nil {
			return nil, fmt.Errorf("config: %w", err)
		}
	}
	for i := range p.Tools {
		t, err := p.Tools[i].manifest()
		if err != nil {
			return nil, fmt.Errorf("tool %s: %w", p.Tools[i].Name, err)
		}
		m.Tools = append(m.Tools, t)
	}
	return typed.Marshal(&m)
}

func (t *Tool) manifest() (abi.Tool, error) {
	m := abi.Tool{
		Name: t.Name, Title: t.Title, Description: t.Description, Hints: t.Hints,
		Needs: t.Needs, Approval: t.Approval, Deferrable: t.Deferrable, Narration: t.Narrate, Limits: t.Limits,
	}
	if t.Handler.run == nil {
		return m, errors.New("it has no handler, make one with guest.Handle")
	}

	var err error
	if m.InputSchema, err = typed.Input(t.Handler.in); err != nil {
		return m, fmt.Errorf("arguments: %w", err)
	}
	if m.OutputSchema, err = outputSchema(t.Handler.out); err != nil {
		return m, fmt.Errorf("result: %w", err)
	}

	for i, e := range t.Examples {
		x := abi.Example{Name: e.Name, Error: e.Error}
		if x.Args, err = typed.Marshal(e.Args); err != nil {
			return m, fmt.Errorf("arguments of example %d: %w", i, err)
		}
		if e.Result != nil {
			if x.Result, err = typed.Marshal(e.Result); err != nil {
				return m, fmt.Errorf("result of example %d: %w", i, err)
			}
		}

		m.Examples = append(m.Examples, x)
	}

	return m, nil
}

func (p *Plugin) lookup(name string) (*Tool, bool) {
	for i := range p.Tools {
		if p.Tools[i].Name == name && p.Tools[i].Handler.run != nil {
			return &p.Tools[i], true
		}
	}
	return nil, false
}
