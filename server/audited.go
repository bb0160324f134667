package server

import (
	"errors"

	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/internal/record"
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
