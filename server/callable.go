package server

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/internal/reason"
)

// callable is a tool that can be called, whatever its source. The embedded tool is its
// author's declaration.
type callable struct {
	*abi.Tool
	Name      string          // name for agents
	plugin    *plugins.Plugin // plugin with the tool; nil for a tool of the program
	*settings                 // in force when the tool was found
	backend
}

// backend checks the arguments and results of one tool, and calls it. The time of a call
// starts with Call, and the call ends with its context.
type backend interface {
	CheckObject(args Args) []abi.Problem
	CheckResult(value json.RawMessage) []abi.Problem
	// PublicArgs returns the arguments that may be stored, and whether secret ones were
	// left out.
	PublicArgs(args json.RawMessage) (public json.RawMessage, secret bool)
	// Version changes with the code of the tool. An error that matches
	// plugins.ErrReplaced or plugins.ErrChanged means that a reload is due.
	Version() (string, error)
	// Denied returns an error that matches host.ErrDenied if the tool lacks grants.
	Denied() error
	// Refused returns why the tool cannot run at all, if that is known.
	Refused() error
	Call(ctx context.Context, req host.Call) (abi.Result, error)
}

// ofPlugin returns a tool of a plugin.
func ofPlugin(t *plugins.Tool, now *settings) *callable {
	return &callable{Tool: t.Tool, Name: t.Name, plugin: t.Plugin, settings: now, backend: t}
}

// ofProgram returns a tool of the program.
func ofProgram(t *gotool.Loaded, now *settings) *callable {
	return &callable{Tool: t.Tool, Name: t.Name, settings: now, backend: t}
}

// admit makes the checks before the tool runs, except for a person's approval: valid
// arguments, and grants.
func (t *callable) admit(args Args) error {
	if problems := t.CheckObject(args); len(problems) > 0 {
		return reason.BadArgs(t.Name, problems)
	}
	if err := t.Denied(); err != nil {
		return &host.CallError{Plugin: t.source(), Tool: t.Tool.Name, Name: t.Name, Err: err}
	}
	return nil
}

// source returns the name of the tool's plugin; empty for a tool of the program.
func (t *callable) source() string {
	if t.plugin == nil {
		return ""
	}
	return t.plugin.Manifest.Name
}

// The kinds of tools, as runs and calls show them.
const (
	kindWasm = "wasm" // a tool of a plugin
	kindGo   = "go"   // a tool of the program
)

// provider returns what the tool belongs to.
func (t *callable) provider() engine.Provider {
	if t.plugin == nil {
		return engine.Provider{Kind: kindGo}
	}
	m := t.plugin.Manifest
	return engine.Provider{Kind: kindWasm, Plugin: m.Name, PluginVersion: m.Version}
}

// toolset holds the tools of a Service, and their settings.
type toolset struct {
	registry *plugins.Registry
	program  program
	agent    []*agentTool // the agent's own, whether models see them or not
	index    searchIndex
}

// callables returns all tools but the agent's own, sorted by name.
func (s *toolset) callables() []*callable {
	view, own := s.registry.View(), s.program.all()
	now := view.Attached().(*settings)
	all := make([]*callable, 0, len(own)+8)
	for _, t := range own {
		all = append(all, ofProgram(t, now))
	}
	for _, t := range view.Tools() {
		all = append(all, ofPlugin(t, now))
	}
	if len(own) > 0 {
		slices.SortFunc(all, func(a, b *callable) int { return strings.Compare(a.Name, b.Name) })
	}
	return all
}

// lookup returns a tool by the name agents know it by. Its error matches
// [plugins.ErrNoTool], and may suggest a similar name, including one of others.
func (s *toolset) lookup(name string, others ...string) (*callable, error) {
	view := s.registry.View()
	now := view.Attached().(*settings)
	if t := s.program.lookup(name); t != nil {
		return ofProgram(t, now), nil
	}
	t, err := view.Lookup(name)
	if err != nil {
		for _, own := range s.program.all() {
			others = append(others, own.Tool.Name)
		}
		t, err = view.Lookup(name, others...)
	}
	if err != nil {
		return nil, err
	}
	return ofPlugin(t, now), nil
}

// find is lookup, and waits for plugins that have not been described since the start.
func (s *toolset) find(ctx context.Context, name string) (*callable, error) {
	tool, err := s.lookup(name)
	if errors.Is(err, plugins.ErrNoTool) && s.registry.Described(ctx) == nil {
		return s.lookup(name)
	}
	return tool, err
}

// toolOf returns the tool of a call. Its error may suggest one of the agent's own tools.
func (s *Service) toolOf(ctx context.Context, c call) (*callable, error) {
	tool, err := s.find(ctx, c.Tool)
	if err != nil {
		tool, err = s.lookup(c.Tool, s.offeredNames(s.runs)...)
	}
	return tool, err
}
