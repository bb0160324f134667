package server

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/internal/fair"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// RunsConfig limits background runs, and says how they are kept. A zero field is
// its default.
type RunsConfig struct {
	PerSession int // active runs of one session, parked calls not counted; 0 is background.DefaultPerSession
	PerHost    int // active runs of all sessions, parked calls counted; 0 is background.DefaultPerHost. with Config.Host.Shared one client can have three quarters of them
	Parked     int // active parked calls of one session; 0 is background.DefaultParked
	Schedules  int // enabled schedules of one session; 0 is background.DefaultSchedules

	Park      Park          // which calls are parked; empty is ParkHinted
	ParkAfter time.Duration // how long a call is waited for before it is parked; 0 is DefaultParkAfter, or less if MaxLimits.Background requires it; negative is never

	Retention  time.Duration // how long an ended run is kept; 0 is background.DefaultRetention
	RetainRuns int           // how many ended runs of a session are kept; 0 is background.DefaultRetainRuns
	NoticeTTL  time.Duration // how long a notice that nobody acknowledges is kept, and its run with it; 0 is background.DefaultNoticeTTL
	OutputCap  int           // bytes of output kept of a run; 0 is background.DefaultOutputCap
	LogQuota   int64         // bytes of the output of all runs in Config.DataDir; 0 is DefaultLogQuota

	// RecordQuota is how many bytes the records of all runs and schedules may
	// take: see engine.Quota. 0 is DefaultRecordQuota, or with no
	// Config.DataDir, where output counts too, background.DefaultRecordQuota.
	// With Config.Host.Shared one client can have three quarters of it.
	RecordQuota int64

	EndSession background.SessionEnd // what the end of a session does to its runs; empty is background.EndParked

	MinInterval time.Duration // between two firings of a schedule; 0 is background.DefaultInterval
	Misfire     time.Duration // how late a missed firing is still caught up; 0 is background.DefaultMisfire
}

// check refuses contradictions, with a *background.FieldError.
func (c RunsConfig) check(most time.Duration) error {
	switch c.Park {
	case "", ParkHinted, ParkAll, ParkNever:
	default:
		return &background.FieldError{Field: "Runs.Park", Problem: fmt.Sprintf("expected %q, %q or %q, found %q", ParkHinted, ParkAll, ParkNever, c.Park)}
	}
	if c.Park != ParkNever && c.ParkAfter > max(0, most-ParkedTime) {
		return &background.FieldError{Field: "Runs.ParkAfter", Problem: fmt.Sprintf(
			"a call that is parked after %v may take %v, but MaxLimits.Background is %v: raise it, or park sooner", c.ParkAfter, c.ParkAfter+ParkedTime, most)}
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

	c, x := s.cfg.Runs, executor{s}
	cfg := background.Config{
		Executor: x.execute, Readmit: x.readmit, Version: x.version, Logger: s.cfg.Logger,
		PerSession: c.PerSession, PerHost: c.PerHost, Parked: c.Parked, Schedules: c.Schedules,
		Grace: s.cfg.grace, MaxTimeout: s.rules.most.Background, OutputCap: c.OutputCap,
		Retention: c.Retention, RetainRuns: c.RetainRuns, NoticeTTL: c.NoticeTTL, EndSession: c.EndSession,
		MinInterval: c.MinInterval, Misfire: c.Misfire, Engine: s.engine,
		RecordQuota: c.recordQuota(s.cfg.DataDir != ""), Texts: texts,
	}
	if s.cfg.OnNotice != nil {
		cfg.OnNotice = func(n background.Notice) { s.cfg.OnNotice(newNotice(n)) }
	}
	if s.cfg.Host.Shared {
		cfg.Owner, cfg.PerOwner = fair.ClientOf, fair.PerClient(cmp.Or(c.PerHost, background.DefaultPerHost))
		cfg.OwnerQuota = max(1, cfg.RecordQuota-cfg.RecordQuota/4)
	}

	s.runs, err = background.New(context.WithoutCancel(ctx), cfg)
	return err
}

// hasRuns reports whether there are records of runs or schedules, or may be.
func (s *Service) hasRuns(ctx context.Context) bool {
	runs, err := s.runs.List(ctx, engine.Query{Limit: 1})
	if err != nil || len(runs) > 0 {
		return true
	}
	schedules, err := s.runs.Schedules(ctx, "")
	return err != nil || len(schedules) > 0
}

// Retention is how long an ended run is kept. A run whose notice nobody took is
// kept at least that long, unless [RunsConfig.NoticeTTL] is shorter. Others may be
// removed sooner, if the session has more than [RunsConfig.RetainRuns] or the
// record quota is full.
func (s *Service) Retention() time.Duration {
	return cmp.Or(s.cfg.Runs.Retention, background.DefaultRetention)
}
