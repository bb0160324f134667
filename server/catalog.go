package server

import (
	"context"
	"errors"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/internal/agent"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// A Definition is a tool in the form that a model sees.
type Definition = wire.Definition

// Annotations describe what a call to a tool may do.
type Annotations = wire.Annotations

// Listing says how models discover a tool: see the field Listing of [Config].
type Listing = catalog.Listing

// The values of Listing.
const (
	ListDirectly Listing = catalog.ListDirectly // models get the tool's definition, and pay for it in every call
	ListBySearch Listing = catalog.ListBySearch // models find it by search: the tool is deferred
)

// Exec is the name of the tool that runs scripts, which call other tools. An example
// plugin provides it, and no other tool should use the name.
const Exec = catalog.Exec

// Limits of searches for tools.
const (
	MaxQuery     = catalog.MaxQuery     // maximum length of a query, in characters; the rest is ignored
	DefaultFound = catalog.DefaultFound // number of tools that a search returns by default
	MaxFound     = catalog.MaxFound     // maximum number of tools that a search can return
)

// openTools loads the program's own tools, and the plugins.
func (s *Service) openTools(ctx context.Context, cfg Config, now *settings) (err error) {
	s.program, err = catalog.NewProgram(gotool.Config{Calls: cfg.Host.TotalCalls, Shared: cfg.Host.Shared, Logger: cfg.Logger}, agent.Names, cfg.Tools)
	if err != nil {
		return err
	}
	s.registry, err = plugins.Open(ctx, s.host, plugins.Config{
		Folders: cfg.Folders, Grants: cfg.Grants, Reserved: agent.Names, Taken: s.program.Names(), CacheDir: cfg.CacheDir, DescribeLater: cfg.DescribeLater, Interpret: cfg.Interpret, Lock: cfg.Lock, Verifier: cfg.Verifier, Attached: now,
	})
	if err != nil {
		return err
	}
	s.catalog = catalog.New(s.registry, s.program)
	return nil
}

// Definitions returns the tools for a model: those of the plugins and of the program, sorted
// by name, then the agent's own, if some tool can be spawned or parked. If none can,
// check_background and stop_background are still included while there are runs.
// [Service.ToolsChanged] signals when to call Definitions again. Plugins that lack grants are
// left out, and so are deferred tools, see [Config].Listing and [Service.AllDefinitions].
func (s *Service) Definitions(session string) []Definition {
	return slices.DeleteFunc(s.AllDefinitions(session), func(d Definition) bool { return d.Deferred })
}

// AllDefinitions returns the tools of [Service.Definitions] and the deferred tools, sorted
// together. Each can be called by its name.
func (s *Service) AllDefinitions(session string) []Definition {
	tools := s.catalog.Tools()
	return append(s.catalog.Definitions(tools), s.agent.Definitions(tools, s.now().cfg.Runs.Schedules >= 0)...)
}

// Declarations returns TypeScript declarations of up to limit tools, of plugins and of the
// program, that match words of the query, best matches first. An empty query finds all of
// them, sorted by name. The limit must be between 1 and [MaxFound].
func (s *Service) Declarations(query string, limit int) wire.Declarations {
	return s.catalog.Declarations(query, limit)
}

// UsualLimits returns the limits of a plugin's tool that requests none of its own. The limits
// in the [Definition] of a tool may differ from them.
func (s *Service) UsualLimits() wire.ToolLimits { return s.now().rules.Usual() }

// MaxAnswer returns the maximum size of a value that a model gets at once, in bytes: see
// Config.Answer.
func (s *Service) MaxAnswer() int64 { return s.now().cfg.answer() }

// Register adds a tool to the program's own, see package gotool. The error describes the
// problem with it, or names the tool that already has its name. A plugin that claims the
// name later is a problem. Subscribed clients are notified.
//
// [Open] decides on the runs of an earlier process, so a tool whose runs are to continue
// must be in Config.Tools.
func (s *Service) Register(t gotool.Tool) error {
	if s.closed.Load() {
		return reason.ErrShutdown
	}
	if err := s.catalog.Register(t); err != nil {
		return err
	}
	s.reoffer()
	s.changed.Send()
	return nil
}

// Unregister removes one of the program's own tools. Its active calls and runs continue;
// queued runs and schedules fail when they are due. The error matches [plugins.ErrNoTool] if
// the program has no such tool.
func (s *Service) Unregister(name string) error {
	if err := s.catalog.Unregister(name); err != nil {
		return err
	}
	s.reoffer()
	s.changed.Send()
	return nil
}

// ProgramTools returns the program's own tools, sorted by name, as operators see them.
// They are not sandboxed.
func (s *Service) ProgramTools() []wire.PluginTool { return s.catalog.ProgramTools() }

// Catalog returns the loaded plugins, and everything that needs an operator's attention:
// the problems of [Service.Findings], and files that cannot be read now. It may have to
// read the files of plugins.
func (s *Service) Catalog(ctx context.Context) ([]wire.Plugin, []wire.FileProblem, error) {
	unread, err := s.registry.ReadDigests(ctx)
	if err != nil {
		return nil, nil, err
	}
	return s.catalog.Plugins(), append(s.Findings(), newProblems(unread)...), nil
}

// Findings returns what needs an operator's attention: plugins that were not loaded; plugins
// that were granted something, but not enough for any of their tools; plugins that may call
// certain tools, but some of these cannot be called; damage to Config.DataDir, and a full
// disk; and plugins that have differed between hosts for more than ten minutes. A plugin that
// was granted nothing, or enough for some of its tools, is not a finding: the operator may not
// want the others.
func (s *Service) Findings() []wire.FileProblem {
	found := slices.Concat(newProblems(s.registry.Problems()), s.storage.Problems(), s.cluster.Problems())
	for _, p := range s.registry.Plugins() {
		if p.Denied() != nil && !p.Ungranted() {
			found = append(found, wire.FileProblem{File: p.File, Error: (&plugins.GrantError{Plugin: p}).Error()})
		}
		for _, name := range p.Grant.Tools {
			if _, err := s.catalog.Lookup(name); err != nil && name != abi.EveryTool {
				found = append(found, wire.FileProblem{File: p.File, Error: "granted a tool that cannot be called: " + reason.TextOf(err)})
			}
		}
	}
	return found
}

// Overridden returns the plugins of packs that other plugins replace, see
// [plugins.Registry.Overridden].
func (s *Service) Overridden() []wire.FileProblem { return newProblems(s.registry.Overridden()) }

func newProblems(all []plugins.Problem) []wire.FileProblem {
	var out []wire.FileProblem
	for _, p := range all {
		out = append(out, wire.FileProblem{File: p.File, Error: p.Err.Error()})
	}
	return out
}

// Reload reads the folders of plugins again, see [plugins.Registry.Reload]. Active calls and
// runs finish with the plugin they started with. The error is the cancellation cause of ctx,
// or host.ErrClosed.
func (s *Service) Reload(ctx context.Context) (plugins.Changes, error) {
	return s.reloads.Reload(ctx)
}

// ReloadPlugins is like [Service.Reload], but its result is for operators. It is meant for
// programs that have no configuration to read again. In a dry run it changes nothing.
func (s *Service) ReloadPlugins(ctx context.Context) (wire.Reload, error) {
	out := wire.Reload{Changed: []wire.SettingChange{}, Restart: []wire.SettingChange{}, Problems: []wire.FileProblem{}, DryRun: InDryRun(ctx)}
	if out.DryRun {
		return out, nil
	}

	c, err := s.Reload(ctx)
	out.Added, out.Replaced, out.Removed = c.Added, c.Changed, c.Removed
	out.Problems = append(out.Problems, newProblems(c.Problems)...)
	return out, err
}

// reoffer tells the hosts that share the engine which plugins this host has now, and starts
// the runs that wait for them.
func (s *Service) reoffer() {
	if err := s.runs.Reoffer(context.Background()); err != nil {
		s.log.Warn("other hosts do not know yet what this one has; trying again", "error", err)
	}
}

// soon reports whether a call to a tool failed only because the plugin's file has just
// changed, and the watcher will soon reload it.
func soon(tool *catalog.Tool, err error) bool {
	return configOf(tool).Watch && errors.Is(err, plugins.ErrChanged) && !errors.Is(err, plugins.ErrReplaced)
}

// versionOf returns the version of a tool's plugin.
func versionOf(tool *catalog.Tool) (string, error) {
	digest, err := tool.Version()
	if soon(tool, err) {
		err = tool.Replacing()
	}
	return digest, err
}

// ToolsChanged returns a channel that receives a value when the answer of
// [Service.Definitions] may have changed. Changes before the channel is read count
// as one. It is closed when ctx is done or the service is closed.
func (s *Service) ToolsChanged(ctx context.Context) <-chan struct{} { return s.changed.Subscribe(ctx) }
