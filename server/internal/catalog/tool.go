package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/strictjson"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// A Tool is a tool that can be called, whatever its source. The embedded tool is its
// author's declaration.
type Tool struct {
	*abi.Tool
	Name     string          // name for agents
	Plugin   *plugins.Plugin // plugin that the tool belongs to; nil for the program's own tools
	Settings Settings        // settings in force when the tool was found
	Backend
}

// A Backend checks the arguments and results of one tool, and calls it. The time of a call
// begins when Call is called, and the call ends when its context ends.
type Backend interface {
	CheckObject(args Args) []abi.Problem
	// Fit is like CheckObject, but may correct the arguments. It returns the arguments that
	// fit, and how many values in them were corrected.
	Fit(args Args) (fit Args, corrected int, problems []abi.Problem)
	CheckResult(value json.RawMessage) []abi.Problem
	// ShownSchemas returns the schemas of arguments and results in a form that models and
	// clients accept.
	ShownSchemas() (input, output json.RawMessage)
	// PublicArgs returns the arguments that may be stored, and whether secret ones were
	// left out.
	PublicArgs(args json.RawMessage) (public json.RawMessage, secret bool)
	// Version returns the version, which changes with the code of the tool. An error that
	// matches plugins.ErrReplaced or plugins.ErrChanged means that a reload is due.
	Version() (string, error)
	// Denied returns an error that matches host.ErrDenied if the tool lacks grants.
	Denied() error
	// Refused returns why the tool cannot run at all, if that is known.
	Refused() error
	Call(ctx context.Context, req host.Call) (abi.Result, error)
}

// OfPlugin returns the Tool for a tool of a plugin.
func OfPlugin(t *plugins.Tool, s Settings) *Tool {
	return &Tool{Tool: t.Tool, Name: t.Name, Plugin: t.Plugin, Settings: s, Backend: t}
}

func ofProgram(t *gotool.Loaded, s Settings) *Tool {
	return &Tool{Tool: t.Tool, Name: t.Name, Settings: s, Backend: t}
}

// PluginName returns the name of the tool's plugin; empty for the program's own tools.
func (t *Tool) PluginName() string {
	if t.Plugin == nil {
		return ""
	}
	return t.Plugin.Manifest.Name
}

// SameVersion returns an error if the tool has another version than the one that a run was
// made for.
func (t *Tool) SameVersion(run engine.Run) error {
	version, err := t.Version()
	if err == nil && run.Version != version || errors.Is(err, plugins.ErrReplaced) || errors.Is(err, plugins.ErrChanged) {
		err = t.Replaced()
	}
	return err
}

// Replaced returns the error of a run whose plugin was replaced.
func (t *Tool) Replaced() error {
	return reason.Refuse("the plugin of %s was replaced in the meantime", t.Name)
}

// Replacing returns the error of a call whose plugin is about to be replaced.
func (t *Tool) Replacing() error {
	return reason.Refuse("the plugin of %s is being replaced: try again in a few seconds", t.Name)
}

// The kinds of tools, as runs and calls show them.
const (
	KindWasm = "wasm" // tool of a plugin
	KindGo   = "go"   // one of the program's own tools
)

// Provider returns the plugin or the program that the tool belongs to.
func (t *Tool) Provider() engine.Provider {
	if t.Plugin == nil {
		return engine.Provider{Kind: KindGo}
	}
	m := t.Plugin.Manifest
	return engine.Provider{Kind: KindWasm, Plugin: m.Name, PluginVersion: m.Version}
}

// Admit makes the checks that come before a tool runs, except for a person's approval: that
// the arguments are valid, and that the tool has the grants it needs. It returns the arguments
// of the call, and how many values in them it had to correct.
func (t *Tool) Admit(args Args) (_ Args, corrected int, err error) {
	args, corrected, problems := t.Fit(args)
	if len(problems) > 0 {
		return args, 0, reason.BadArgs(t.Name, problems)
	}
	return args, corrected, t.granted()
}

// AdmitStored is like Admit, but for arguments that were admitted before: it refuses those
// that do not fit, and corrects nothing.
func (t *Tool) AdmitStored(args Args) error {
	if problems := t.CheckObject(args); len(problems) > 0 {
		return reason.BadArgs(t.Name, problems)
	}
	return t.granted()
}

// granted returns an error if the tool lacks grants.
func (t *Tool) granted() error {
	if err := t.Denied(); err != nil {
		return &host.CallError{Plugin: t.PluginName(), Tool: t.Tool.Name, Name: t.Name, Err: err}
	}
	return nil
}

// AdmitCallOf refuses a nested call to another tool that may do what the hints of this
// tool exclude: agents and people rely on those hints.
func (t *Tool) AdmitCallOf(other *Tool, may wire.Annotations) error {
	hints := t.Tool.Hints
	if hints.Readonly && !may.ReadOnly {
		return fmt.Errorf("%w: %s is readonly, so it can call readonly tools only, and %s is not", host.ErrDenied, t.Name, other.Name)
	}
	if closed(hints) && may.OpenWorld {
		return fmt.Errorf("%w: %s says open_world: false, so it cannot call %s, which reaches the network", host.ErrDenied, t.Name, other.Name)
	}
	return nil
}

// closed reports whether a tool declares that it reaches nothing outside of the host.
func closed(h abi.Hints) bool { return h.OpenWorld != nil && !*h.OpenWorld }

// CallsTools reports whether the tool may call others, which a person may have to approve.
func (t *Tool) CallsTools() bool { return t.Plugin == nil || len(t.Plugin.Grant.Tools) > 0 }

// Restartable reports whether a run of the tool may start over after a crash, if it has done
// nothing that must not be done twice. This is only possible if the host knows of everything
// that the plugin does.
func (t *Tool) Restartable() bool { return t.Plugin != nil && len(t.Plugin.Grant.Files) == 0 }

// MaxArgs is the maximum size of the arguments of a call, in bytes.
const MaxArgs = 8 << 20

// Args are arguments that were parsed strictly: a JSON object in UTF-8 without repeated
// names.
type Args = strictjson.Object

var noArgs, _ = strictjson.Parse([]byte("{}"))

// ParseArgs returns the arguments of a call, which may have been parsed already. The text of
// the error is meant for the agent.
func ParseArgs(tool string, parsed Args, raw json.RawMessage) (Args, error) {
	size := max(len(raw), len(parsed.Raw()))
	switch {
	case size > MaxArgs:
		return Args{}, reason.Refuse("the arguments have %d bytes, and at most %d are allowed", size, MaxArgs)
	case parsed.Raw() != nil:
		return parsed, nil
	case len(raw) == 0:
		return noArgs, nil
	}

	parsed, err := strictjson.Parse(raw)
	if wrong, ok := errors.AsType[*strictjson.Error](err); ok {
		err = reason.BadArgs(tool, []abi.Problem{wrong.Problem})
	}
	return parsed, err
}
