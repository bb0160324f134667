package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/internal/fair"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/plugins"
)

// RunsConfig bounds background runs, and says how they are kept. A zero field
// is its default.
type RunsConfig struct {
	PerSession int // active runs of one session, parked calls not counted; 0 is background.DefaultPerSession
	PerHost    int // active runs of all sessions, parked calls counted; 0 is background.DefaultPerHost. With Config.Host.Shared one client can have three quarters of them
	Parked     int // active parked calls of one session; 0 is background.DefaultParked
	Schedules  int // enabled schedules of one session; 0 is background.DefaultSchedules

	Park      Park          // which calls go on in the background; empty is ParkHinted
	ParkAfter time.Duration // how long a call is waited for before; 0 is DefaultParkAfter, or less if MaxLimits.Background has no room for it; negative is never

	Retention  time.Duration // how long an ended run is kept; 0 is background.DefaultRetention
	RetainRuns int           // how many ended runs of a session are kept; 0 is background.DefaultRetainRuns
	NoticeTTL  time.Duration // how long a notice nobody took is kept, and its run with it; 0 is background.DefaultNoticeTTL
	OutputCap  int           // bytes of output kept of a run; 0 is background.DefaultOutputCap
	LogQuota   int64         // bytes of the output of all runs in Config.DataDir; 0 is DefaultLogQuota

	// RecordQuota is how many bytes the records of all runs and schedules may
	// take: see background.Quota. 0 is DefaultRecordQuota, or with no
	// Config.DataDir, where output counts too, background.DefaultRecordQuota.
	// With Config.Host.Shared one client can have three quarters of it.
	RecordQuota int64

	EndSession background.SessionEnd // what the end of a session does to its runs; empty is background.EndParked

	MinInterval time.Duration // between two firings of a schedule; 0 is background.DefaultInterval
	Misfire     time.Duration // how late a missed firing is still caught up; 0 is background.DefaultMisfire
}

// check refuses what contradicts itself, with a *background.FieldError.
func (c RunsConfig) check(most time.Duration) error {
	switch c.Park {
	case "", ParkHinted, ParkAll, ParkNever:
	default:
		return &background.FieldError{Field: "Runs.Park", Problem: fmt.Sprintf("expected %q, %q or %q, found %q", ParkHinted, ParkAll, ParkNever, c.Park)}
	}
	if c.Park != ParkNever && c.ParkAfter > max(0, most-ParkedTime) {
		return &background.FieldError{Field: "Runs.ParkAfter", Problem: fmt.Sprintf(
			"a call that is parked after %v may take %v, and MaxLimits.Background is %v: raise it, or park sooner", c.ParkAfter, c.ParkAfter+ParkedTime, most)}
	}
	return nil
}

func (c RunsConfig) recordQuota(disk bool) int64 {
	if disk {
		return cmp.Or(c.RecordQuota, DefaultRecordQuota)
	}
	return cmp.Or(c.RecordQuota, background.DefaultRecordQuota)
}

// openRuns opens the engine and the manager of runs.
func (s *Service) openRuns(ctx context.Context) (err error) {
	if s.engine, err = s.openEngine(ctx); err != nil {
		return err
	}
	c := s.cfg.Runs
	cfg := background.Config{
		Executor: s.execute, Readmit: s.readmit, Version: s.versionNow, OnNotice: s.cfg.OnNotice, Logger: s.cfg.Logger,
		PerSession: c.PerSession, PerHost: c.PerHost, Parked: c.Parked, Schedules: c.Schedules,
		Grace: s.cfg.grace, MaxTimeout: s.maxLimits().Background, OutputCap: c.OutputCap,
		Retention: c.Retention, RetainRuns: c.RetainRuns, NoticeTTL: c.NoticeTTL, EndSession: c.EndSession,
		MinInterval: c.MinInterval, Misfire: c.Misfire, Engine: s.engine,
		RecordQuota: c.recordQuota(s.cfg.DataDir != ""),
	}
	if s.cfg.Host.Shared {
		cfg.Owner, cfg.PerOwner = fair.ClientOf, fair.PerClient(cmp.Or(c.PerHost, background.DefaultPerHost))
		cfg.OwnerQuota = max(1, cfg.RecordQuota-cfg.RecordQuota/4)
	}
	if cfg.Engine != nil {
		left, err := leftRuns(ctx, cfg.Engine)
		if err != nil {
			return err
		}
		s.had.Store(left)
	}
	s.runs, err = background.New(context.WithoutCancel(ctx), cfg)
	return err
}

// leftRuns reports whether an earlier process left runs or schedules.
func leftRuns(ctx context.Context, engine background.Engine) (bool, error) {
	runs, err := engine.List(ctx, background.Query{Limit: 1})
	if err != nil || len(runs) > 0 {
		return true, err
	}
	schedules, err := engine.Schedules(ctx, "", false)
	return len(schedules) > 0, err
}

// readmit decides whether a run may start that nobody waits for at the door: a
// schedule fired it, or it was there when the host went down. Everything is
// looked up anew: the tool may be gone by now, another one, or no longer
// granted.
func (s *Service) readmit(ctx context.Context, run background.Run) error {
	again := run.Attempt > 0
	tool, err := s.registry.Lookup(run.Tool)
	switch {
	case err != nil:
	case run.Secret:
		err = refuse("its arguments had a secret in them, which was not stored")
	case again:
		err = mayRunAgain(tool, run)
	case !tool.Tool.Hints.SupportsBackground:
		err = refuse("%s does not support background runs", run.Tool)
	}
	if err == nil {
		err = s.admitRun(tool, run)
	}
	if err == nil && run.Schedule != "" && !again { // the others were approved when they were asked for
		err = s.approve(ctx, tool, Approval{Session: run.Session, Args: run.Args})
	}
	switch {
	case err == nil:
		return nil
	case again:
		return &background.Error{Kind: background.KindOrphaned, Message: "The host went down, and the run is not run again: " + public(err), Err: err}
	}
	return &background.Error{Kind: background.KindRejected, Message: public(err), Err: err}
}

// versionNow is the version of a tool that a schedule is about to run; empty if
// it is not there, or is just being replaced.
func (s *Service) versionNow(name string) string {
	tool, err := s.registry.Lookup(name)
	if err != nil {
		return ""
	}
	version, _ := tool.Plugin.Digest()
	return version
}

// mayRunAgain says why a run may not be executed twice.
func mayRunAgain(tool *plugins.Tool, run background.Run) error {
	if hints := tool.Tool.Hints; !hints.Idempotent && !hints.Readonly {
		return refuse("%s is neither idempotent nor readonly", run.Tool)
	}
	if err := tool.Plugin.Refused(); err != nil {
		return refuse("its plugin cannot be compiled: %v", err)
	}
	return sameVersion(tool, run)
}

// sameVersion says why a tool is not the one a run was made for.
func sameVersion(tool *plugins.Tool, run background.Run) error {
	version, err := tool.Plugin.Digest()
	if err == nil && run.Version != version || errors.Is(err, plugins.ErrReplaced) || errors.Is(err, plugins.ErrChanged) {
		err = anotherPlugin(run.Tool)
	}
	return err
}

func anotherPlugin(tool string) error {
	return refuse("the plugin of %s is another one by now", tool)
}

// public is what an agent may be told of an error of a door.
func public(err error) string {
	r, _ := explain(err)
	return r.Error
}

// Notices returns the notices of the session's runs that have ended and that
// nobody was told of: at most max, all if max is 0. It changes nothing, so that
// none is lost: [Service.Acknowledge] those that were shown. See
// [background.RenderNotices] for how to show them to a model.
func (s *Service) Notices(ctx context.Context, session string, max int) ([]background.Notice, error) {
	return s.runs.Pending(ctx, session, max)
}

// Acknowledge takes the notices of these runs back.
func (s *Service) Acknowledge(ctx context.Context, session string, ids []string) error {
	return s.runs.Acknowledge(ctx, session, ids)
}

// Snapshot returns what a model has to know of the session's active runs when
// the beginning of its conversation was cut away, in at most 1,000 characters;
// empty if there is none.
func (s *Service) Snapshot(ctx context.Context, session string) (string, error) {
	return s.runs.Snapshot(ctx, session)
}

// EndSession says that a session is over: its parked calls are stopped, or all
// its runs, as [RunsConfig.EndSession] has it.
func (s *Service) EndSession(ctx context.Context, session string) error {
	return s.runs.EndSession(ctx, session)
}

// Retention is how long an ended run is kept. One whose notice nobody took is
// kept that long in any case, unless [RunsConfig.NoticeTTL] is shorter; another one
// may go sooner, if the session has more than [RunsConfig.RetainRuns] or there
// is no room for the record of a new run.
func (s *Service) Retention() time.Duration {
	return cmp.Or(s.cfg.Runs.Retention, background.DefaultRetention)
}

// Tail reads the raw output of a run, live or stored: see
// [background.Manager.Tail].
func (s *Service) Tail(ctx context.Context, session, id string, offset int64, max int) (background.Chunk, error) {
	return s.runs.Tail(ctx, session, id, offset, max)
}

// OpenArtifact opens a file of an ended run: background.OutputLog or
// background.ResultJSON. The caller closes it.
func (s *Service) OpenArtifact(ctx context.Context, session, id, name string) (background.Artifact, error) {
	return s.runs.Open(ctx, session, id, name)
}
