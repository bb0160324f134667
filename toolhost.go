// Package toolhost runs the tools of AI agents: plugins, which are WebAssembly modules in
// a sandbox with limits, and the program's own functions. A long call continues in the
// background, where the agent can check and stop it.
//
// An agent's loop passes the tools of a [Session] to its model, passes each call that
// the model makes to [Session.Call], and shows the model what [Session.Ended] returns:
//
//	func main() {
//		toolhost.Main()
//		…
//		th, err := toolhost.Open(ctx, toolhost.Config{Plugins: []string{"plugins"}, Data: "data"})
//		…
//		s := th.Session("session-1")
//		for more := true; more; {
//			ended, shown, err := s.Ended(ctx)
//			…
//			reply := model(ended, s.Tools().Anthropic())
//			err = shown(ctx)
//			for _, c := range reply.Calls {
//				result, err := s.Call(ctx, c.Name, c.Input)
//				…
//			}
//			if len(reply.Calls) == 0 {
//				more, err = s.Wait(ctx)
//			}
//		}
//	}
//
// The package is a thin layer on package server: its Service and Session embed
// [server.Service] and [server.Session].
package toolhost

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/wire"
)

// Types from other packages that an agent's loop needs.
type (
	Grants     = map[string]plugins.Grant // grants by plugin name; the zero Grant grants nothing
	Tool       = gotool.Tool              // one of the program's own functions: see Handle
	ToolCall   = gotool.Call              // call of a Tool
	Hints      = abi.Hints                // behavior of a Tool
	Approval   = server.Approval
	Definition = server.Definition
	Request    = server.Request
	Limits     = server.Limits
	Result     = abi.Result // its methods return it in the forms that model APIs expect
	Run        = wire.Run
)

// Handle makes the handler of a [Tool] from a function: see [gotool.Handle].
func Handle[In, Out any](f func(ctx context.Context, c *ToolCall, in In) (Out, error)) gotool.Handler {
	return gotool.Handle(f)
}

// Main lets the program compile plugins in a child process with limits. It must be the
// first statement of main. In that child it exits; otherwise it returns at once. Without
// it, a hostile plugin can crash the program while being compiled.
func Main() { host.CompilerMain() }

// Config configures a Service. Its zero value has no plugins. Paths are relative to the
// working directory.
type Config struct {
	Plugins []string // folders of plugins; the Problems include those that are missing or that others can write to
	Grants  Grants   // what plugins may use; nothing by default
	Tools   []Tool   // the program's own functions, which are not sandboxed

	Data  string // folder in which runs outlive the process; if empty, they are kept in memory only
	Cache string // folder for compiled plugins; if empty, the folder named cache in Data, or memory if there is no Data

	Watch   bool                                        // whether to reload plugins when their files change
	Approve func(ctx context.Context, a Approval) error // decides on calls to tools that require approval; nil refuses them
	Logger  *slog.Logger                                // gets messages for operators; nil discards them

	// Server is called with the configuration of the service before it is opened, to set
	// fields that Config does not have. It may be nil.
	Server func(*server.Config)
}

// Service holds the tools. It is safe for concurrent use.
type Service struct{ *server.Service }

// Open loads the plugins and returns a Service; close it when done. A plugin that cannot
// be loaded is not an error: [server.Service.Problems] says why. If another process uses
// the Data folder, the error matches [server.ErrLocked].
func Open(ctx context.Context, cfg Config) (*Service, error) {
	c := server.Config{
		Grants: cfg.Grants, Tools: cfg.Tools, Watch: cfg.Watch, Approve: cfg.Approve, Logger: cfg.Logger,
		CacheDir: cfg.Cache,
		Host:     host.Config{Compiler: host.ThisProgram()},
	}
	for _, folder := range cfg.Plugins {
		c.Folders = append(c.Folders, plugins.Dir(folder))
	}
	if cfg.Data != "" {
		c.DataDir = filepath.Join(cfg.Data, "runs")
		if c.CacheDir == "" {
			c.CacheDir = filepath.Join(cfg.Data, "cache")
		}
	}
	if cfg.Server != nil {
		cfg.Server(&c)
	}

	s, err := server.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Service{s}, nil
}

// Session returns the session with that name, which can be any non-empty text.
// Background runs belong to a session, and other sessions do not see them.
func (s *Service) Session(name string) Session {
	return Session{s.Service.Session(name), s, name}
}

// Session is one conversation with an agent. It is a small value, safe for concurrent use.
type Session struct {
	server.Session
	service *Service
	name    string
}

// Tools returns the tools for the model. They change when plugins are reloaded, and with
// the first background run.
func (s Session) Tools() Tools { return s.service.Definitions(s.name) }

// Tools is a list of tool definitions.
type Tools []Definition

// Anthropic returns the tools for Anthropic's Messages API.
func (t Tools) Anthropic() []json.RawMessage { return t.as(Definition.Anthropic) }

// OpenAI returns the tools for OpenAI's Chat Completions API.
func (t Tools) OpenAI() []json.RawMessage { return t.as(Definition.OpenAI) }

// OpenAIResponses returns the tools for OpenAI's Responses API.
func (t Tools) OpenAIResponses() []json.RawMessage { return t.as(Definition.OpenAIResponses) }

// Gemini returns the tools for the Gemini API, as the functionDeclarations of one entry in its
// list of tools.
func (t Tools) Gemini() []json.RawMessage { return t.as(Definition.Gemini) }

// MCP returns the tools for the result of tools/list.
func (t Tools) MCP() []json.RawMessage { return t.as(Definition.MCP) }

func (t Tools) as(shape func(Definition) json.RawMessage) []json.RawMessage {
	all := make([]json.RawMessage, len(t))
	for i, d := range t {
		all[i] = shape(d)
	}
	return all
}

// An Option changes a call.
type Option func(*Request)

// WithKey sets an idempotency key. A repeat of the call with the same key, tool and
// arguments returns the result of this call instead of running it again: see [Request].
func WithKey(key string) Option { return func(r *Request) { r.Key = key } }

// WithLimits limits the call. Zero fields keep the limits of the tool.
func WithLimits(l Limits) Option { return func(r *Request) { r.Limits = l } }

// Call calls a tool by the name that the model uses. The arguments are a JSON object; nil means
// an empty one. The result is for the model, and always valid: see [Result.Text]. The error is
// for the program: see [server.Service.Call].
//
// A call that takes long continues as a background run, which the result names.
func (s Session) Call(ctx context.Context, tool string, args json.RawMessage, options ...Option) (Result, error) {
	r := Request{Session: s.name, Tool: tool, Args: args}
	for _, o := range options {
		o(&r)
	}
	return s.service.Call(ctx, r)
}

// maxEnded is how many ended runs a model is shown at a time.
const maxEnded = 10

// Ended returns a text about the background runs that have ended since the last text that
// the model was shown. It is empty if there are none. Pass it to the model as a user's
// message, never as a system prompt, because it contains output of tools. Then call
// shown. Until shown has returned nil, Ended returns the same runs again.
func (s Session) Ended(ctx context.Context) (text string, shown func(context.Context) error, err error) {
	notices, err := s.Notices(ctx, maxEnded)
	var ids []string
	for _, n := range notices.Notices {
		ids = append(ids, n.TaskID)
	}
	return notices.Text, func(ctx context.Context) error { return s.Acknowledge(ctx, ids) }, err
}

// lookAgain is how often Wait looks without an event: there is none when the service is
// closed or its storage fails.
const lookAgain = time.Second

// Wait waits until Ended has something to say, and then reports true. It reports false if Ended
// has nothing to say, and no active run will change that. It does not return when a run asks
// its user something. The error is the cause of ctx if that ends first, an error of
// [server.Service.StorageErr], or one matching [host.ErrClosed].
func (s Session) Wait(ctx context.Context) (more bool, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	events := s.Watch(watching) // before the runs are read: no end is missed
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()

	for {
		ended, quiet, err := s.look(ctx)
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case s.service.Closed():
			return false, host.ErrClosed
		case err != nil || ended || quiet:
			return ended, err
		case s.service.StorageErr() != nil: // no end is stored any more
			return false, s.service.StorageErr()
		}

		select {
		case <-events:
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// look reports whether Ended has an ended run to return, and whether no active run will
// become one.
func (s Session) look(ctx context.Context) (ended, quiet bool, err error) {
	active, err := s.Runs(ctx, server.RunQuery{Active: true})
	if err != nil {
		return false, false, err
	}
	notices, err := s.Notices(ctx, 1) // after the runs: one that has ended meanwhile is among them
	quiet = !slices.ContainsFunc(active, func(r Run) bool { return r.SignalOnCompletion })
	return len(notices.Notices) > 0, quiet, err
}
