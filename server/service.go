// Package server joins plugins and background runs into the one Service that
// every door shares: the command line, MCP, HTTP and programs that embed it.
//
// A tool is called now ([Service.Call]) or spawned as a background run, which
// the agent itself does with three more tools: spawn_background,
// check_background and stop_background. Whatever the door, the same checks
// stand before a tool: it exists, its arguments fit its schema, the operator
// granted what it needs, a person agreed if it asks for that, and there is room.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/plugins"
)

// Config configures a Service. Only Folders has to be set for there to be any
// tool; what is left zero has its default, and nothing is granted.
type Config struct {
	Folders   []plugins.Folder
	Grants    map[string]plugins.Grant // by plugin name
	CacheDir  string                   // for compiled plugins, shared between processes; empty keeps them in memory
	Limits    Limits                   // of a call whose tool asks for nothing; zero fields are the host's defaults
	MaxLimits Limits                   // the most a tool may ask for; zero fields are 10^13 units, 1 GiB, 256 MiB and an hour

	// Host says how much memory all calls may have together, how many direct calls
	// run at a time, what is kept warm and how much of CacheDir is used. Its CacheDir
	// and Logger are those of this Config.
	Host host.Config

	PerSession int // active background runs of one session; 0 is background.DefaultPerSession
	PerHost    int // active background runs of all sessions; 0 is background.DefaultPerHost

	// Approve is asked before a tool runs whose manifest says
	// approval: required. Nil refuses each such call.
	Approve func(ctx context.Context, a Approval) error
	// Logger gets what operators should know. Nil discards.
	Logger *slog.Logger

	grace time.Duration // background.Config.Grace; tests shorten it
}

// Approval is a call that a person has to agree to.
type Approval struct {
	Session, Tool string
	Args          json.RawMessage
}

// Service calls and spawns the tools of a set of plugins. It is safe for
// concurrent use.
type Service struct {
	cfg      Config
	log      *slog.Logger
	host     *host.Host
	registry *plugins.Registry
	runs     *background.Manager
	closed   atomic.Bool
	agent    []*agentTool // spawn, check and stop; none if no tool supports background
}

// Open loads the plugins and returns a Service. A plugin that cannot be loaded
// is a problem (see [Service.Problems]), not an error. Close the Service when
// done.
func Open(ctx context.Context, cfg Config) (*Service, error) {
	s := &Service{cfg: cfg, log: cfg.Logger}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var err error
	cfg.Host.CacheDir, cfg.Host.Logger = cfg.CacheDir, cfg.Logger
	if s.host, err = host.New(ctx, cfg.Host); err != nil {
		return nil, err
	}
	s.registry, err = plugins.Open(ctx, s.host, plugins.Config{
		Folders: cfg.Folders, Grants: cfg.Grants, Reserved: agentNames, CacheDir: cfg.CacheDir,
	})
	if err == nil {
		s.runs, err = background.New(context.WithoutCancel(ctx), background.Config{
			Executor: s.execute, PerSession: cfg.PerSession, PerHost: cfg.PerHost, Grace: cfg.grace,
			MaxTimeout: s.maxLimits().Background, Logger: cfg.Logger,
		})
	}
	if err == nil {
		s.agent, err = s.agentTools()
	}
	if err != nil {
		_ = s.Close(ctx)
		return nil, err
	}
	return s, nil
}

// Close refuses new calls and runs, waits for those that are active until ctx
// is done, then ends them, and frees everything.
func (s *Service) Close(ctx context.Context) error {
	s.closed.Store(true)
	var errs []error
	if s.runs != nil {
		errs = append(errs, s.runs.Close(ctx))
	}
	errs = append(errs, s.host.Close(ctx)) // frees the compiled plugins too
	return errors.Join(errs...)
}

// Stats returns what the host's calls are doing and did, and what they take.
func (s *Service) Stats() host.Stats { return s.host.Stats() }

// Plugins returns the loaded plugins.
func (s *Service) Plugins() []*plugins.Plugin { return s.registry.Plugins() }

// Tools returns the plugins' tools, sorted by name, those whose plugin was not
// granted all it needs included.
func (s *Service) Tools() []*plugins.Tool { return s.registry.Tools() }

// Problems returns what of the folders was not loaded, and why.
func (s *Service) Problems() []plugins.Problem { return s.registry.Problems() }

// Compile compiles all plugins now, as [plugins.Registry.Compile] does, so that
// no first call has to.
func (s *Service) Compile(ctx context.Context, progress func(done, total int, file string, err error)) error {
	return s.registry.Compile(ctx, progress)
}

// Lookup returns a tool of a plugin by the name agents know it by. Its error
// matches [plugins.ErrNoTool].
func (s *Service) Lookup(name string) (*plugins.Tool, error) { return s.registry.Lookup(name) }

// Runs returns the background runs, for those who need more of them than the
// agent's tools show.
func (s *Service) Runs() *background.Manager { return s.runs }
