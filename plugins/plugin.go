package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/lock"
	"github.com/toolhost/toolhost/internal/schema"
	"github.com/toolhost/toolhost/internal/strictjson"
)

// Plugin is a loaded plugin file. Its fields do not change. Info.Digest is empty;
// use [Plugin.Digest].
type Plugin struct {
	File     string // path of the file: folder and name
	Source   string // source of the manifest: a section, a sidecar or describe
	Manifest *abi.Manifest
	Info     *host.Info
	Grant    Grant    // the operator's grants
	Missing  []string // needs of the plugin and of its tools that were not granted, see [Tool].Missing
	Tools    []*Tool
	Pack     bool   // whether the plugin comes from a pack, see [Folder]
	Signer   Signer // signer of the plugin

	host      *host.Host
	interpret bool // whether to interpret it instead of compiling it
	at        place
	folder    fs.FS
	name      string
	source    string // path of the folder, for [Verifier]
	builtIn   bool
	verifier  Verifier // nil if its signature does not count

	stamp     stamp        // stamp of the file when it was loaded
	seen      stamp        // stamp when the file was last found unchanged; guarded by the registry's reading
	beside    string       // digest of the sidecar that holds its manifest, or empty
	signed    string       // digest of its signatures, by anyone
	granted   Grant        // grants of the configuration; Grant is the accepted part
	locked    *lock.Plugin // its entry in the lock, or nil
	kept      bool         // whether it is the accepted version of a file that has been replaced
	refused   error        // why a plugin of a pack is not loaded, unless it gives way
	notes     []Problem    // problems of a loaded plugin
	from      Folder
	digests   *digests
	digesting sync.Mutex

	description *description // nil if the manifest is in a section or a sidecar

	digest atomic.Pointer[string] // nil until it is computed
	held   atomic.Bool            // whether it stays in use although its file has changed

	compilations *sync.WaitGroup // compilations of the registry

	mu        sync.Mutex
	module    *host.Module // nil until it is compiled
	code      host.Code    // code of the last module; zero until it is compiled
	users     int          // users of module
	compiling *compilation // nil unless it is being compiled
	failed    error        // error of the last compilation
	gone      error        // error for new callers, set once the plugin is retired
}

// Tool is a tool in the form that agents see. The embedded tool is the tool's
// part of the manifest; its Name is the name within the plugin.
type Tool struct {
	*abi.Tool
	Name    string // name by which agents know the tool, unique among all plugins
	Plugin  *Plugin
	Missing []string // needs of the tool and of its plugin that were not granted; it is not called until this is empty

	input, output *schema.Schema
}

// CheckArgs returns the problems of arguments that do not fit the tool's schema, or
// nil. A missing property with a default counts as given: [Tool.Call] fills it in.
func (t *Tool) CheckArgs(args json.RawMessage) []abi.Problem { return t.input.Check(args) }

// CheckObject is like CheckArgs, but takes arguments that were parsed strictly.
func (t *Tool) CheckObject(args strictjson.Object) []abi.Problem { return t.input.CheckObject(args) }

// Fit is like CheckObject, but corrects two kinds of values where the schema does not allow
// them: null in place of an absent value, and JSON in a string. It returns the arguments
// that fit, and how many values in them were corrected.
func (t *Tool) Fit(args strictjson.Object) (fit strictjson.Object, corrected int, problems []abi.Problem) {
	return t.input.Fit(args)
}

// ShownSchemas returns the schemas of arguments and results in the form that all model APIs and
// clients accept: with properties and items, and without references where possible. They accept
// the same values as the tool's own schemas. output is nil if the tool has no output schema.
func (t *Tool) ShownSchemas() (input, output json.RawMessage) {
	return t.input.Shown(), t.output.Shown()
}

// PublicArgs returns the arguments that may be stored: without the values that the
// schema marks as secret (writeOnly or x-secret). secret reports whether there were
// any.
func (t *Tool) PublicArgs(args json.RawMessage) (public json.RawMessage, secret bool) {
	return t.input.Public(args)
}

// TakesSecrets reports whether the schema marks arguments of the tool as secret.
func (t *Tool) TakesSecrets() bool { return t.input.HasSecrets() }

// CheckResult returns the problems of a result that does not fit the tool's output
// schema. It returns nil if the result fits or the tool has no output schema.
func (t *Tool) CheckResult(value json.RawMessage) []abi.Problem {
	if t.output == nil {
		return nil
	}
	if value == nil {
		value = json.RawMessage("null")
	}
	return t.output.Check(value)
}

// Version returns [Plugin.Digest], which changes whenever the code of the tool does.
func (t *Tool) Version() (string, error) { return t.Plugin.Digest() }

// Denied returns an error that matches host.ErrDenied if the tool lacks grants, else nil.
func (t *Tool) Denied() error {
	if len(t.Missing) == 0 {
		return nil
	}
	who := "the plugin " + t.Plugin.Manifest.Name
	if !reflect.ValueOf(t.Needs).IsZero() {
		who = "the tool " + t.Name
	}
	return &deniedError{who, t.Missing}
}

// deniedError says what a tool lacks. Its text is built only when it is read, because a
// listing checks every tool for this error.
type deniedError struct {
	who     string
	missing []string
}

func (e *deniedError) Error() string {
	return fmt.Sprintf("%v: %s needs %s, which the operator has not granted", host.ErrDenied, e.who, strings.Join(e.missing, ", "))
}

func (e *deniedError) Unwrap() error { return host.ErrDenied }

// Refused returns why the tool cannot run, see [Plugin.Refused].
func (t *Tool) Refused() error {
	if err := t.Plugin.Refused(); err != nil {
		return fmt.Errorf("its plugin cannot be compiled: %w", err)
	}
	return nil
}

// Call runs the tool with the operator's grants. The first call of a plugin compiles
// it, which counts against the call's time (see [Registry.CompileAhead]). If that
// takes longer than a second, the call reports it as its status. Within a session,
// calls to a plugin's serial tools run one after the other.
//
// Errors are those of host.Host.Call and host.Host.Compile, and match host.ErrDenied
// if the tool lacks grants. After an error that matches [ErrReplaced] or
// [ErrChanged] nothing has run: look the tool up again after the next reload.
func (t *Tool) Call(ctx context.Context, req host.Call) (abi.Result, error) {
	p := t.Plugin
	fail := func(kind abi.Kind, message string, err error) (abi.Result, error) {
		return abi.Result{Kind: kind, Error: message}, &host.CallError{Plugin: p.Manifest.Name, Tool: t.Tool.Name, Name: t.Name, Err: err}
	}
	if err := t.Denied(); err != nil {
		return fail(abi.ToolError, err.Error(), err)
	}

	limit := host.TimeLimit(req.Policy.Timeout)
	if !p.compiled() { // compiling counts against the call's time
		timed, cancel := context.WithTimeoutCause(ctx, limit.Limit, limit)
		defer cancel()
		ctx = timed
	}

	told, began := p.tellCompiling(req.Progress), time.Now()
	module, err := p.use(ctx, host.CompileOptions{})
	compiling := time.Since(began)
	told(err)
	if errors.Is(err, limit) {
		err = &host.WaitedError{Err: err, For: "its plugin was still being compiled, which is done once: try again in some seconds, or with more time"}
		r, err := fail(abi.LimitReached, err.Error(), err)
		r.Limit = abi.LimitTime
		return r, err
	}
	if err != nil {
		kind, message := abi.Internal, abi.InternalMessage
		if errors.Is(err, host.ErrABI) { // the module is at fault, and the error does not name it
			kind, message = abi.ToolError, fmt.Sprintf("the plugin %s (%s) cannot be run: %v", p.Manifest.Name, p.name, err)
		}
		if errors.Is(err, host.ErrSpace) {
			message = host.ErrSpace.Error()
		}
		return fail(kind, message, fmt.Errorf("%s: %w", p.File, err))
	}

	defer p.unuse()
	if len(req.Args) == 0 {
		req.Args = json.RawMessage("{}")
	}
	if req.Args, err = t.input.Fill(req.Args); err != nil {
		return fail(abi.ToolError, "the arguments do not fit: "+err.Error(), err)
	}
	_, req.Secret = t.input.Public(req.Args)
	req.Plugin, req.Tool = p.Manifest.Name, t.Tool.Name
	req.Argv, req.Command, req.Function, req.Input, req.MCPTool = t.Argv, t.Command, t.Function, t.Input, t.MCPTool
	req.HostFunctions = p.Manifest.HostFunctions
	req.Serial, req.Readonly = t.Hints.Concurrency == abi.Serial, t.Hints.Readonly
	req.ImpureInit = !t.Hints.IsPureInit()
	req.Policy.Grant = granted(p.Grant, t.Hints)
	result, err := p.host.Call(ctx, module, req)
	result.Usage.Wall += compiling
	result.Usage.Wait += compiling
	if call, ok := errors.AsType[*host.CallError](err); ok {
		call.Name = t.Name
	}
	return result, err
}

// Denied returns an error that matches host.ErrDenied if all tools of the plugin lack
// grants, else nil.
func (p *Plugin) Denied() error {
	if len(p.Missing) == 0 || slices.ContainsFunc(p.Tools, func(t *Tool) bool { return len(t.Missing) == 0 }) {
		return nil
	}
	return &deniedError{"the plugin " + p.Manifest.Name, p.Missing}
}

// Ungranted reports whether the plugin lacks grants and was granted nothing at all.
func (p *Plugin) Ungranted() bool {
	return len(p.Missing) > 0 && reflect.ValueOf(p.granted).IsZero()
}

// compareNeeds compares what the plugin and its tools need with what they were granted.
func (p *Plugin) compareNeeds() {
	common := p.Grant.Missing(p.Manifest.Needs)
	p.Missing = common
	for _, t := range p.Tools {
		own := p.Grant.Missing(t.Needs)
		t.Missing = append(slices.Clip(common), lock.Beyond(own, common)...)
		p.Missing = append(slices.Clip(p.Missing), lock.Beyond(own, p.Missing)...)
	}
}

// Needs lists the needs of a plugin in the operator's notation. It marks the needs of a
// single tool and the optional ones.
func Needs(m *abi.Manifest) []string {
	all := needTexts(m.Needs, "")
	for i := range m.Tools {
		all = append(all, needTexts(m.Tools[i].Needs, " (tool "+m.Tools[i].Name+")")...)
	}
	return all
}

func needTexts(n abi.Needs, of string) (texts []string) {
	for _, need := range (Grant{}).Missing(n) {
		texts = append(texts, need+of)
	}
	for _, need := range (Grant{}).Missing(n.Opt()) {
		texts = append(texts, need+of+" (optional)")
	}
	return texts
}

// GrantError names the needs of a plugin and its tools that were not granted, for the
// operator.
type GrantError struct{ Plugin *Plugin }

func (e *GrantError) Error() string {
	p := e.Plugin
	if p.Denied() != nil {
		return "not granted what it needs: " + strings.Join(p.Missing, ", ")
	}

	var tools []string
	for _, t := range p.Tools {
		if t.Denied() != nil {
			tools = append(tools, t.Name+" needs "+strings.Join(t.Missing, ", "))
		}
	}
	return "not granted what some of its tools need: " + strings.Join(tools, "; ")
}

// Unwrap returns host.ErrDenied.
func (e *GrantError) Unwrap() error { return host.ErrDenied }

// ConfigError means that settings of a plugin do not fit the schema in its manifest.
type ConfigError struct {
	Plugin   string
	Problems []abi.Problem
}

func (e *ConfigError) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.String()
	}
	return fmt.Sprintf("grants.%s.config: %s: toolhost inspect shows the settings", e.Plugin, strings.Join(texts, "; "))
}

// Refused returns why an earlier attempt to compile the plugin failed for good,
// see host.Host.Refused, or nil.
func (p *Plugin) Refused() error {
	digest, err := p.Digest()
	if err != nil {
		return nil
	}
	return p.host.Refused(digest)
}

// Grant is the operator's grant to one plugin: see [host.Grant] for its fields. The zero
// Grant grants nothing. This one grants the clock and a folder:
//
//	plugins.Grant{Clock: true, Files: []host.Mount{{Dir: "/srv/work", Path: "/work", Mode: abi.FileWrite}}}
type Grant = host.Grant

// granted returns the grant of one call. A tool with the hint readonly can only read its folders,
// its key-value store and its session's values, so that the hint is enforced.
func granted(g Grant, hints abi.Hints) Grant {
	g.Env, g.Config, g.Files = maps.Clone(g.Env), maps.Clone(g.Config), slices.Clone(g.Files)
	if hints.Readonly {
		if g.Session != "" {
			g.Session = abi.StoreRead
		}
		if g.KV.Mode != "" {
			g.KV.Mode = abi.StoreRead
		}
		for i := range g.Files {
			g.Files[i].Mode = abi.FileRead
		}
	}
	return g
}
