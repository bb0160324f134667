package server

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/fair"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/agent"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/internal/repeat"
	"github.com/toolhost/toolhost/server/internal/runs"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// RunsConfig sets the limits of background runs, and how they are kept. The fields Executor,
// Engine, MaxTimeout, Readmit, Version, Provider, Hold, OnNotice, OnEnd, Owner, PerOwner,
// OwnerQuota, Ephemeral, CanAccess, InternalText, Offer and Logger are set by the Service. If
// Config.Engine is set, the field Patience defaults to the constant [Patience]. With
// Config.Host.Shared, one client can have up to three quarters of PerHost and RecordQuota.
type RunsConfig = background.Config

// check refuses contradictions, with a *background.FieldError.
func (c Config) check(most time.Duration) error {
	switch c.Park {
	case "", ParkOverdue, ParkHinted, ParkAll, ParkNever:
	default:
		return &background.FieldError{Field: "Park", Problem: fmt.Sprintf("expected %q, %q, %q or %q, found %q", ParkOverdue, ParkHinted, ParkAll, ParkNever, c.Park)}
	}
	if c.Answer != 0 && c.Answer < MinAnswer {
		return &background.FieldError{Field: "Answer", Problem: "must be at least 8 KiB, which a model gets of a larger value"}
	}
	if c.Park != ParkNever && c.ParkAfter > max(0, most-ParkedTime) {
		return &background.FieldError{Field: "ParkAfter", Problem: fmt.Sprintf(
			"a call that is parked after %v may take %v, but MaxLimits.Background is %v: raise it, or park sooner", c.ParkAfter, c.ParkAfter+ParkedTime, most)}
	}
	return nil
}

// openRuns opens the manager of runs, which starts the runs that an earlier process left.
func (s *Service) openRuns(ctx context.Context) (err error) {
	s.checker = &approval.Checker{
		Engine: s.engine, Process: s.process, Lookup: func(tool string) (*catalog.Tool, error) { return s.catalog.Lookup(tool) },
		Rules: rulesOf, Audit: &s.audit,
	}
	x := &runs.Executor{
		Catalog: s.catalog, Settings: func() catalog.Settings { return s.now() }, Versions: s.versions, Checker: s.checker, Questions: &s.questions,
		Audit: &s.audit, Telemetry: s.telemetry, Log: s.log, Opened: make(chan struct{}),
	}
	s.executor = x
	defer close(x.Opened)
	if s.runs, err = background.New(context.WithoutCancel(ctx), s.runsConfig()); err != nil {
		return err
	}

	s.approvals = approval.New(approval.Config{
		Checker: s.checker, Runs: s.runs, Policy: func() approval.Policy { return s.now().approvals.Policy },
		Lacks: connector{secrets: s.secrets}.lacks, Processes: s.cluster.Processes, Serving: s.serving, Log: s.log,
	})
	if s.agent, err = agent.New(s.catalog, s.runs); err != nil {
		return err
	}
	x.Follower = &runs.Follower{Runs: s.runs, Records: s.engine, Approvals: s.approvals, Questions: &s.questions, Offer: s.offerRuns, Log: s.log}
	x.Call, x.Child = s.stages.passRun, s.stages.passChild
	s.sessions = &runs.Sessions{
		Manager: s.runs, Engine: s.engine, Catalog: s.catalog, Checker: s.checker, Follower: x.Follower,
		Audit: &s.audit, Files: s.kept(), Version: versionOf, Pass: s.stages.passSpawn,
	}
	s.openStages()
	return nil
}

// runsConfig returns the configuration of the manager of runs.
func (s *Service) runsConfig() background.Config {
	cfg, x := s.cfg.Runs, s.executor
	cfg.Executor, cfg.Readmit, cfg.Version, cfg.Provider, cfg.Hold = x.Execute, x.Readmit, x.Version, x.Provider, x.Hold
	cfg.Offer, cfg.OnEnd = s.offer, record.MeasureEnd(s.telemetry)
	cfg.Engine, cfg.Logger, cfg.InternalText = s.engine, s.cfg.Logger, abi.InternalMessage
	cfg.CanAccess, cfg.Ephemeral = canAccess, unnamed
	if s.cfg.Engine != nil {
		cfg.Patience = cmp.Or(cfg.Patience, Patience)
	}
	s.now().bounds(&cfg)

	if s.cfg.DataDir != "" {
		cfg.RecordQuota = cmp.Or(cfg.RecordQuota, DefaultRecordQuota)
	}
	if s.cfg.OnNotice != nil {
		cfg.OnNotice = func(r engine.Run) { s.cfg.OnNotice(shape.Notice(r, s.kept())) }
	}
	if s.cfg.Host.Shared {
		quota := cmp.Or(cfg.RecordQuota, background.DefaultRecordQuota)
		cfg.Owner, cfg.OwnerQuota = fair.ClientOf, max(1, quota-quota/4)
	}
	return cfg
}

// passRun passes a run that starts through its stages.
func (l *stages) passRun(ctx context.Context, x *runs.Execution) (abi.Result, error) {
	req := Request{Session: x.Session, Tool: x.Tool, Args: x.Args, Limits: x.Requested.Limits, Locale: x.Requested.Locale}
	return l.run(ctx, call{Request: req, run: x, note: &record.Note{}})
}

// passChild passes a call that may become a child run through the checks of a nested call.
func (l *stages) passChild(ctx context.Context, child runs.ChildCall) (found runs.Child, err error) {
	c := call{outer: &origin{tool: child.Caller, fuel: child.Fuel}, child: &found, note: &record.Note{}}
	c.Session, c.Tool, c.Args, c.Limits.Timeout, c.Locale = child.Session, child.Tool, child.Args, child.Timeout, child.Locale
	_, err = l.child(ctx, c)
	return found, err
}

// admitted is the last stage of a call that may become a child run.
func admitted(callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		*c.child = runs.Child{Tool: c.tool, Args: c.Parsed, Run: func() (background.SpawnRequest, error) {
			version, err := versionOf(c.tool)
			if err != nil {
				return background.SpawnRequest{}, err
			}
			return c.asLaterRun(ctx, version), nil
		}}
		return abi.Result{}, nil
	}
}

// unchanged refuses a run whose plugin was replaced since the run was admitted or approved.
func unchanged(_ context.Context, c call) (call, error) { return c, c.run.Unchanged(c.tool) }

// begin is the stage that attaches the sink of a run to the call.
func begin(x *runs.Executor) stage {
	return func(next callFunc) callFunc {
		return func(ctx context.Context, c call) (abi.Result, error) {
			c.allowed.Timeout = c.run.Timeout
			ctx, c.work = x.Begin(ctx, c.run, c.tool, c.work)
			return next(ctx, c)
		}
	}
}

// repeats is the stage that answers a call from the run of an earlier request: one with
// the same key, or one that was answered with a question.
func repeats(earlier repeat.Repeater) stage {
	return func(next callFunc) callFunc {
		return func(ctx context.Context, c call) (abi.Result, error) {
			if c.DryRun || c.Resumes == "" && c.Key == "" {
				return next(ctx, c)
			}
			again := repeat.Call{Waiter: c.caller(), Tool: c.tool, Args: c.Args, Key: c.Key, Resumes: c.Resumes}
			if r, found, err := earlier.Answer(ctx, again); found {
				return r, err
			}
			return next(ctx, c)
		}
	}
}

// canAccess reports whether a client that named no session may use, by their ids, the runs
// and schedules of another unnamed session: each of the client's requests may be in a new
// session. Ids cannot be guessed. The sessions of different users stay apart.
func canAccess(session, other string) bool {
	of := func(session string) string { return session[:strings.LastIndexByte(session, '/')+1] }
	from := of(session)
	return from == of(other) && (from == wire.UnnamedPrefix || strings.HasSuffix(from, "/"+wire.UnnamedPrefix))
}

// unnamed reports whether a session belongs to a client that did not name it. Later
// connections of the client have other sessions.
func unnamed(session string) bool {
	return strings.HasPrefix(session, wire.UnnamedPrefix) || strings.Contains(session, "/"+wire.UnnamedPrefix)
}

// Retention returns how long an ended run is kept. A run with an unacknowledged notice is
// kept at least that long, unless NoticeTTL is shorter. Others may be removed sooner, if
// the session has more than RetainRuns or the record quota is full.
func (s *Service) Retention() time.Duration {
	return cmp.Or(s.now().cfg.Runs.Retention, background.DefaultRetention)
}
