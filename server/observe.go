package server

import (
	"context"
	"errors"
	"time"

	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/internal/presence"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/telemetry"
)

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

// Figures are figures of direct calls and of the last hour.
type Figures = record.Figures

// CallQuery selects calls for [Figures].
type CallQuery = record.CallQuery

// Figures returns the figures of the service.
func (s *Service) Figures() *Figures { return s.figures }

// Connections lists the clients that have sent requests recently, for operators: List
// returns those that are connected, or have sent a request in the last 30 minutes, at most
// 1,024, the latest request first. Transports call Visit for each request, and Depart when a
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

// measureStore reports what only the store of runs knows.
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
