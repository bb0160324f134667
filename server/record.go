package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/internal/presence"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/telemetry"
)

// recorder records calls: in figures, in traces and metrics, and in the audit log.
type recorder struct {
	figures   *record.Figures
	telemetry *telemetry.Telemetry
	audit     record.Auditor
	log       *slog.Logger
}

// record is the stage that records how a call ends, whatever becomes of it.
func (r recorder) record(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		began := time.Now()
		c.note = &record.Note{Tool: c.Tool}
		if c.outer != nil {
			n := c.note
			n.Outer, n.By, n.Unlisted = c.outer.call.ID, c.outer.tool.Name, c.outer.listed.Add(1) > maxListed
		}
		ctx, span := r.telemetry.StartCall(ctx, c.outer != nil)
		answer, err := next(ctx, c)

		counted := answer
		if c.note.Followed {
			counted.Usage = abi.Usage{}
		}
		r.figures.Add(*c.note, c.Session, began, counted, err)
		span.End(c.note.Ended(counted, err))
		r.audit.Call(*c.note, c.Session, c.DryRun, began, counted, err)
		if ctx.Err() != nil && c.outer == nil {
			r.unresolved(ctx, c, answer)
		}
		return answer, err
	}
}

// unresolved logs a call whose caller left without an answer: its connection was closed
// or timed out, or it canceled the call.
func (r recorder) unresolved(ctx context.Context, c call, answer abi.Result) {
	if errors.Is(context.Cause(ctx), ErrAskAgain) { // it is there, and asks its user
		return
	}
	became := "canceled"
	if answer.Kind == abi.Success || answer.Kind == abi.ToolError {
		became = "finished, not delivered"
	}
	r.log.Info("the caller left before the call was answered",
		"tool", reason.Clip(c.Tool, reason.MaxProblem), "session", c.Session, "call", c.note.ID, "became", became, "cause", context.Cause(ctx))
}

// ErrNoAudit is the error of a Service without an audit log.
var ErrNoAudit = errors.New("this server keeps no audit log")

// SearchAudit returns events of the audit log for operators, newest first: see
// [audit.Search]. Without a log the error is [ErrNoAudit].
func (s *Service) SearchAudit(q audit.Query, most int64) (found []audit.Event, next int64, err error) {
	if s.cfg.AuditDir == "" {
		return nil, 0, ErrNoAudit
	}
	return audit.Search(s.cfg.AuditDir, q, most)
}

// Figures holds statistics of direct calls and of the last hour.
type Figures = record.Figures

// CallQuery selects calls for [Figures].
type CallQuery = record.CallQuery

// Figures returns the figures of the service.
func (s *Service) Figures() *Figures { return s.figures }

// Connections lists the clients that have sent requests recently, for operators: List
// returns those that are connected, or have sent a request in the last 30 minutes, at most
// 1,024, the latest request first. Transports call Begin for each request, and Remove when a
// connection has ended. It is safe for concurrent use.
type Connections = presence.Clients

// Connections returns the list of recent clients.
func (s *Service) Connections() *Connections { return &s.connections }

// measureWithin is how long the store of runs may take to answer when metrics are collected.
const measureWithin = 2 * time.Second

// Telemetry returns the instruments of the service, for transports.
func (s *Service) Telemetry() *telemetry.Telemetry { return s.telemetry }

// measure reports the current values of metrics.
func (s *Service) measure(ctx context.Context, o telemetry.Observer) {
	record.ObserveCalls(s.host.Stats(), o)
	if s.closed.Load() {
		return
	}
	record.ObserveRuns(s.runs.Stats(), o)
	o.Set(telemetry.Plugins, float64(len(s.registry.Plugins())))
	o.Set(telemetry.Tools, float64(len(s.registry.Tools())))
	o.Set(telemetry.Problems, float64(len(s.Findings())))
	o.Set(telemetry.Connections, float64(len(s.connections.List())))
	if written, lost, kept := s.audit.Counts(); kept {
		o.Set(telemetry.AuditEvents, float64(written))
		o.Set(telemetry.AuditLost, float64(lost))
	}
	stored := s.storage.Stats()
	if s.kept() {
		o.Set(telemetry.StoreProblems, float64(stored.Problems))
	}

	ctx, cancel := context.WithTimeout(ctx, measureWithin)
	defer cancel()
	up := 1.0
	if err := s.measureStore(ctx, o); err != nil || stored.Failed != "" {
		up = 0
	}
	o.Set(telemetry.StoreUp, up)
}

// measureStore reports the metrics that only the store of runs knows.
func (s *Service) measureStore(ctx context.Context, o telemetry.Observer) error {
	waiting, err := s.approvals.Waiting(ctx, "")
	if err != nil {
		return err
	}
	o.Set(telemetry.ApprovalsWaiting, float64(len(waiting)))

	stores, err := s.KV().List(ctx)
	if err != nil {
		return err
	}
	record.ObserveKV(stores, s.registry.Plugins(), o)
	if s.cfg.Engine == nil {
		return nil
	}
	hosts, err := s.Hosts(ctx)
	if err == nil {
		record.ObserveHosts(hosts, o)
	}
	return err
}
