// Package server joins plugins and background runs into one [Service]. All
// transports share it: the command line, MCP, HTTP and programs that embed it.
//
// A tool is called ([Service.Call]) or spawned as a background run
// ([Session.Spawn]). An agent spawns, checks and stops runs, and sends them
// messages, with tools of its own, such as spawn_background. A call that
// takes too long becomes a background run too, and a schedule starts one when it is
// due. Every transport makes the same checks before a tool runs: the tool exists,
// its arguments fit its schema, the operator granted what it needs, a person
// approved the call if that is required, and a slot is free.
package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/internal/agent"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/cluster"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/internal/reload"
	"github.com/toolhost/toolhost/server/internal/runs"
	"github.com/toolhost/toolhost/server/internal/secret"
	"github.com/toolhost/toolhost/server/internal/versions"
	"github.com/toolhost/toolhost/server/telemetry"
	"github.com/toolhost/toolhost/server/wire"
)

// Config configures a Service. Without Folders it has no plugins. All other zero fields
// have defaults, and nothing is granted by default.
type Config struct {
	Folders   []plugins.Folder
	Grants    map[string]plugins.Grant // grants by the name of the plugin
	Lock      plugins.Lock             // accepted plugins; zero accepts everything
	Verifier  plugins.Verifier         // verifies the signatures of plugins; nil requires none
	CacheDir  string                   // folder for compiled plugins, shared between processes; empty keeps them in memory
	Interpret []string                 // plugins to interpret instead of compiling; "*" means all
	Limits    Limits                   // limits of tools that request none of their own; zero fields are the host's defaults
	MaxLimits Limits                   // the most a tool may ask for; zero fields mean 10^13 units of fuel, 1 GiB of memory, 256 MiB of output, and an hour
	Answer    int64                    // maximum size of a value that a model gets at once, in bytes, see [Request.OnStored]; 0 means DefaultAnswer, the minimum is MinAnswer

	// Tools are the program's own tools, written in Go: see package gotool. They are not
	// sandboxed. A plugin with a tool of the same name is a problem. [Service.Register]
	// adds more later.
	Tools []gotool.Tool

	// DataDir is the folder that keeps runs, their output, notices and schedules beyond the
	// life of the process; it is created if it does not exist. Only one Service can use it
	// at a time: for a second one, the error of Open matches [ErrLocked]. If it is empty,
	// everything is in memory only, unless Engine is set.
	DataDir string
	// Engine stores runs and schedules instead of DataDir: any implementation that passes
	// the conformance suite enginetest. Services on several machines may share one. The
	// caller closes it after the Service. Nil means DataDir. With an Engine, DataDir only
	// holds copies of the plugins that waiting runs continue with; without a DataDir, such
	// runs continue with the plugins as they are then.
	Engine engine.Engine
	Runs   RunsConfig // settings of background runs

	// AuditDir is the folder of the audit log, see package audit; it is created if it does
	// not exist. Only one Service can use it at a time. If it is empty, no log is written.
	// Audit limits its size.
	AuditDir string
	Audit    audit.Config
	LogQuota int64 // maximum size of the output of all runs in DataDir, in bytes; 0 means DefaultLogQuota

	Park      Park          // which calls are parked; empty means ParkOverdue
	ParkAfter time.Duration // how long callers wait before a call is parked; 0 means DefaultParkAfter, or less if MaxLimits.Background requires it; negative means never

	// OnNotice is called when a run has ended and its session is to be notified: see
	// background.Config.OnNotice. If it is nil, only [Session.Notices] reports such ends.
	OnNotice func(n wire.Notice)

	// Watch reloads the plugins whenever something in Folders changes, until the Service is
	// closed. Without it, only [Service.Reload] reloads them.
	Watch bool
	// CompileAhead compiles the plugins in the background, until the Service is closed, so
	// that no call has to wait for compilation.
	CompileAhead bool
	// DescribeLater lets [Open] and reloads return before all plugins are described. Those
	// without a manifest in a custom section or a sidecar are compiled, and asked for their
	// manifest, in the background; OnReload gets the changes.
	DescribeLater bool
	// OnReload is called after a reload that changed something or found a new
	// problem. Calls do not overlap. It must not call [Service.Reload] or
	// [Service.Close]. If it is nil, problems are logged.
	OnReload func(c plugins.Changes)

	// Host limits the memory and the number of calls, the warm instances and the size of
	// CacheDir. Its CacheDir and Logger default to those of this Config.
	Host host.Config

	// Secrets provides the values that go into HTTP requests by the rules of Grants. If it is
	// nil, a call that needs a secret ends, and its result says that the user has to connect
	// something first. A [*vault.Vault] can also hold secrets of users, see [Service.Secrets].
	Secrets host.Secrets

	// Listing is how models discover tools. Keys are names as agents see them, or patterns
	// such as files_*. A name takes precedence over patterns, and a longer pattern over a
	// shorter one. Tools without a key are listed. Models find a deferred tool with
	// tools_search, and can call it by its name. Patterns do not defer tools whose manifest
	// says deferrable: never, nor [Exec], nor, if there is no Exec, the agent's own tools.
	Listing map[string]Listing

	// Approvals says which calls a person has to approve.
	Approvals ApprovalPolicy
	// Approve decides on each call that Approvals asks about; for a schedule, when it is
	// made and at each firing. It is not asked again when an approved run starts later,
	// or starts again after a crash of the host. Nil refuses each such call.
	Approve func(ctx context.Context, a Approval) error
	// Name and Version identify this host to others that share the engine, and to their
	// operators. Name can be any name, and is by default that of the machine. Version is the
	// version of the program.
	Name, Version string
	// Telemetry says where metrics and traces go: by default to the global providers of
	// OpenTelemetry.
	Telemetry telemetry.Config
	// Logger gets messages for operators. Nil discards them.
	Logger *slog.Logger
}

// Approval is a call that a person has to approve. Its arguments are complete and
// may contain secrets.
type Approval struct {
	Session, Tool string
	Args          json.RawMessage
	Caller        string // tool that makes the call; empty for an agent's call
	// Schedule says when the tool will run, if a schedule is being made. It is nil for a
	// call, a spawn, and a firing of a schedule.
	Schedule *wire.Schedule
}

// Service calls and spawns the tools of a set of plugins. The plugins may change while it
// runs. It is safe for concurrent use.
type Service struct {
	store

	cfg         Config // configuration as opened; see now for fields that may have changed
	stages      stages // the stages of each kind of call
	process     string // random id of this Service: identifies it among the hosts
	log         *slog.Logger
	host        *host.Host
	registry    *plugins.Registry
	program     *catalog.Program
	catalog     *catalog.Catalog
	agent       *agent.Tools
	runs        *background.Manager
	executor    *runs.Executor
	sessions    *runs.Sessions
	closed      atomic.Bool
	step        atomic.Pointer[string] // what Close waits for
	questions   question.Registry
	connections Connections
	secrets     *secret.Store
	checker     *approval.Checker
	approvals   *approval.Manager
	seals       *Seals
	cluster     *cluster.Cluster
	figures     *record.Figures
	telemetry   *telemetry.Telemetry

	versions *versions.Store
	reloads  *reload.Reloader
	changed  reload.Signal // sent when the tools may have changed as models see them

	configuring sync.Mutex // held by Reconfigure
	watching    sync.WaitGroup
	serving     context.Context // done once Close begins
	unwatch     context.CancelFunc
}

// Open loads the plugins and returns a Service. A plugin that cannot be loaded is a problem
// (see [Service.Problems]), not an error. Close the Service when done.
//
// With Config.DataDir, runs of an earlier process continue if their tools allow it: see the
// field Readmit of [background.Config].
func Open(ctx context.Context, cfg Config) (*Service, error) {
	s := &Service{cfg: cfg, process: rand.Text(), log: cfg.Logger, unwatch: func() {}}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.figures = record.NewFigures(func() (background.Stats, host.Stats) { return s.runs.Stats(), s.host.Stats() })
	var err error
	if s.telemetry, err = telemetry.New(cfg.Telemetry); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	if err := s.open(ctx); err != nil {
		_ = s.Close(ctx)
		return nil, err
	}
	return s, nil
}

func (s *Service) open(ctx context.Context) (err error) {
	cfg, now := s.cfg, newSettings(s.cfg)
	if err := now.check(); err != nil {
		return err
	}
	s.serving, s.unwatch = context.WithCancel(context.WithoutCancel(ctx))

	cfg.Host.CacheDir = cmp.Or(cfg.Host.CacheDir, cfg.CacheDir)
	cfg.Host.Logger = cmp.Or(cfg.Host.Logger, cfg.Logger)
	if s.host, err = host.New(ctx, cfg.Host); err != nil {
		return err
	}

	if err := s.openTools(ctx, cfg, now); err != nil {
		return err
	}
	if err := s.openStore(ctx); err != nil {
		return err
	}
	if err := s.openRuns(ctx); err != nil {
		return err
	}

	if err := s.telemetry.Observe(s.measure); err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	ctx = s.serving
	s.figures.Sample() // what comes now belongs to the first minute
	s.watching.Go(func() { s.figures.Follow(ctx) })
	s.watching.Go(func() { s.versions.Maintain(ctx) })
	s.watching.Go(func() { s.cluster.Watch(ctx) })
	s.watching.Go(func() { s.approvals.Expire(ctx) })
	s.reloads = reload.New(reload.Config{Registry: s.registry, Audit: &s.audit, OnReload: cfg.OnReload, Offer: s.reoffer, Tools: &s.changed, Logger: s.log})
	s.reloads.Watch(cfg.Watch)
	if s.cfg.CompileAhead {
		s.watching.Go(func() { s.registry.CompileAhead(ctx, s.reloads.Report) })
	} else if s.cfg.DescribeLater {
		s.watching.Go(func() { s.registry.DescribeAhead(ctx, s.reloads.Report) })
	}
	return nil
}

// Closed reports whether Close was called.
func (s *Service) Closed() bool { return s.closed.Load() }

// Close refuses new calls and runs, and waits for active ones until ctx is done. Then it
// interrupts them and releases everything. [Service.WaitsFor] describes its progress.
func (s *Service) Close(ctx context.Context) error {
	s.closed.Store(true)
	s.unwatch()
	s.waits("a reload of the plugins")
	if s.reloads != nil {
		s.reloads.Close()
	}
	s.watching.Wait()
	s.changed.Close()
	errs := []error{s.telemetry.Close()}

	if s.registry != nil {
		s.registry.Freeze()
	}
	if s.runs != nil {
		s.waits("runs and calls")
		errs = append(errs, s.runs.Close(ctx))
	}
	s.waits("the program's own tools")
	errs = append(errs, s.program.Close(ctx))
	if s.storage != nil {
		s.waits("the database")
		errs = append(errs, s.storage.Close())
	}
	errs = append(errs, s.audit.Close())
	if s.host != nil {
		s.waits("calls and compilations")
		errs = append(errs, s.host.Close(ctx)) // no call runs any more
	}
	if s.registry != nil {
		s.waits("the plugins")
		errs = append(errs, s.registry.Close(ctx))
	}
	s.waits("")
	return errors.Join(errs...)
}

func (s *Service) waits(what string) { s.step.Store(&what) }

// maxUnfinished is how many runs WaitsFor names.
const maxUnfinished = 5

// WaitsFor describes on one line what [Service.Close] waits for: the part of the service,
// and the runs and calls that have not ended. It is empty while Close is not waiting.
func (s *Service) WaitsFor() string {
	step := s.step.Load()
	if step == nil || *step == "" || s.runs == nil {
		return ""
	}

	var names []string
	left := s.runs.Unfinished()
	for _, run := range left[:min(len(left), maxUnfinished)] {
		names = append(names, fmt.Sprintf("%s of %s, since %s", run.ID, run.Tool, run.CreatedAt.Format(time.TimeOnly)))
	}
	if more := len(left) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}

	text := *step
	if len(names) > 0 {
		text += ": " + strings.Join(names, ", ")
	}
	if n := s.host.Stats().Running; n > 0 {
		text += fmt.Sprintf(" (%d calls of plugins run)", n)
	}
	if names := s.program.Running(); len(names) > 0 {
		text += fmt.Sprintf(" (tools of the program run: %s)", strings.Join(names[:min(len(names), maxUnfinished)], ", "))
	}
	return text
}

// Stats are figures for operators.
type Stats struct {
	Runs    background.Stats `json:"runs"`
	Host    host.Stats       `json:"host"` // figures of calls, including the calls of runs
	Storage StorageStats     `json:"storage"`
}

// Stats returns figures of runs, calls and storage.
func (s *Service) Stats() Stats {
	return Stats{Runs: s.runs.Stats(), Host: s.host.Stats(), Storage: s.storage.Stats()}
}

// Plugins returns the loaded plugins. A reload may change what it returns, and likewise the
// results of Tools, Problems and Lookup.
func (s *Service) Plugins() []*plugins.Plugin { return s.registry.Plugins() }

// Tools returns the plugins' tools, sorted by name, including those whose plugin
// lacks grants.
func (s *Service) Tools() []*plugins.Tool { return s.registry.Tools() }

// Problems returns the plugins that were not loaded, and why.
func (s *Service) Problems() []plugins.Problem { return s.registry.Problems() }

// Compile compiles all plugins now, as [plugins.Registry.Compile] does, so that their first
// calls do not have to.
func (s *Service) Compile(ctx context.Context, progress func(done, total int, file string, err error)) error {
	return s.registry.Compile(ctx, progress)
}

// Lookup returns the plugin tool that agents know by this name. Its error matches
// [plugins.ErrNoTool].
func (s *Service) Lookup(name string) (*plugins.Tool, error) { return s.registry.Lookup(name) }
