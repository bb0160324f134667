package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/schema"
	"github.com/toolhost/toolhost/internal/strictjson"
)

// Plugin is a loaded plugin file. Its fields do not change. Info.Digest is empty:
// see [Plugin.Digest].
type Plugin struct {
	File     string // folder and name
	Source   string // where its manifest is from
	Manifest *abi.Manifest
	Info     *host.Info
	Grant    Grant    // what the operator granted
	Missing  []string // what it needs and was not granted; it is not called before all is
	Tools    []*Tool

	host      *host.Host
	interpret bool // in place of compiling it
	at        place
	folder    fs.FS
	name      string

	stamp     stamp  // of the file
	seen      stamp  // of the file when it was found the same last; whoever reads the folders has it
	beside    string // digest of the sidecar its manifest is from; empty if it is from none
	pin       *Pin   // which it fits; nil if its name is not pinned
	digests   *digests
	digesting sync.Mutex
	digest    atomic.Pointer[string] // nil until somebody needs it
	stored    atomic.Bool            // its compiled code was stored for later

	mu        sync.Mutex
	module    *host.Module // nil until it is compiled
	users     int          // of the module
	compiling *compilation // nil if it is not being compiled
	failed    error        // why it was not compiled the last time
	held      bool         // the module is not freed although nobody uses it: its file is not what it was
	gone      error        // why nobody may use it any more who does not yet; nil while the registry has it

	compilations sync.WaitGroup
	loading      int // of them that have not ended
}

// Tool is a tool as agents see it.
type Tool struct {
	Name   string // unique among all plugins
	Tool   *abi.Tool
	Plugin *Plugin

	input, output *schema.Schema
}

// CheckArgs reports what in the arguments does not fit the tool's schema.
func (t *Tool) CheckArgs(args json.RawMessage) []abi.Problem { return t.input.Check(args) }

// CheckObject is CheckArgs for arguments that were read strictly.
func (t *Tool) CheckObject(args strictjson.Object) []abi.Problem { return t.input.CheckObject(args) }

// PublicArgs returns arguments without the values their schema marks as secret
// (writeOnly or x-secret), and whether there were any: what may be stored.
func (t *Tool) PublicArgs(args json.RawMessage) (public json.RawMessage, secret bool) {
	return t.input.Public(args)
}

// CheckResult reports what in a result does not fit the schema the tool
// declares for it, if it declares one.
func (t *Tool) CheckResult(value json.RawMessage) []abi.Problem {
	if t.output == nil {
		return nil
	}
	if value == nil {
		value = json.RawMessage("null")
	}
	return t.output.Check(value)
}

// Call runs the tool: it compiles the plugin if this is its first call, and waits
// for that no longer than the call may take (see [Registry.CompileAhead]). It
// adds what the operator granted to the policy of the call. Calls of the tools
// of a plugin that are not to overlap take turns within their session. Its errors are
// those of host.Host.Call and of host.Host.Compile, and match host.ErrDenied
// if the plugin was not granted all it needs. One that matches [ErrReplaced]
// or [ErrChanged] says that nothing has run: look the tool up again, after the
// next reload.
func (t *Tool) Call(ctx context.Context, req host.Call) (abi.Result, error) {
	p := t.Plugin
	fail := func(kind abi.Kind, message string, err error) (abi.Result, error) {
		return abi.Result{Kind: kind, Error: message}, &host.CallError{Plugin: p.Manifest.Name, Tool: t.Tool.Name, Err: err}
	}
	if err := p.Denied(); err != nil {
		return fail(abi.ToolError, err.Error(), err)
	}

	limit := host.TimeLimit(req.Policy.Timeout)
	if !p.compiled() { // to wait for that takes of the call's time
		timed, cancel := context.WithTimeoutCause(ctx, limit.Limit, limit)
		defer cancel()
		ctx = timed
	}

	module, err := p.use(ctx)
	if errors.Is(err, limit) {
		err = &host.WaitedError{Err: err, For: "its plugin was still being compiled, which is done once: try again in some seconds, or with more time"}
		r, err := fail(abi.LimitReached, err.Error(), err)
		r.Limit = abi.LimitTime
		return r, err
	}
	if err != nil {
		kind, message := abi.Internal, abi.InternalMessage
		if errors.Is(err, host.ErrABI) { // the module is at fault, and nothing else is in the error
			kind, message = abi.ToolError, fmt.Sprintf("the plugin %s (%s) cannot be run: %v", p.Manifest.Name, p.name, err)
		}
		return fail(kind, message, fmt.Errorf("%s: %w", p.File, err))
	}

	defer p.unuse()
	req.Plugin, req.Tool, req.Argv = p.Manifest.Name, t.Tool.Name, t.Tool.Argv
	req.Serial = t.Tool.Hints.Concurrency == abi.Serial
	req.ImpureInit = !t.Tool.Hints.IsPureInit()
	req.Policy.Grant = granted(p.Grant, t.Tool.Hints)
	return p.host.Call(ctx, module, req)
}

// Denied says why the plugin's tools are not called: it was not granted all it
// needs. The error matches host.ErrDenied; nil if they are.
func (p *Plugin) Denied() error {
	if len(p.Missing) == 0 {
		return nil
	}
	return fmt.Errorf("%w: the plugin %s needs %s, which the operator has not granted", host.ErrDenied, p.Manifest.Name, strings.Join(p.Missing, ", "))
}

// Refused says why the plugin cannot be compiled, if that was found out before:
// see host.Host.Refused. It is nil if it can be, or was not tried.
func (p *Plugin) Refused() error {
	digest, err := p.Digest()
	if err != nil {
		return nil
	}
	return p.host.Refused(digest)
}
