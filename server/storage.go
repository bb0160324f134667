package server

import (
	"context"
	"path/filepath"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/pkg/background/sqlite"
	"github.com/toolhost/toolhost/server/wire"
)

// Quotas of a Config.DataDir.
const (
	DefaultLogQuota    = 1 << 30 // bytes of the output of all runs
	DefaultRecordQuota = 1 << 30 // bytes of the records of all runs and schedules
)

// StorageStats say which stored state was damaged or lost. They are zero for an
// engine that does not report it.
type StorageStats struct {
	Failed     string `json:"failed,omitempty"` // why nothing is stored any more, until the server is restarted
	Problems   int    `json:"problems"`         // damage and losses since the start
	Quarantine int64  `json:"quarantine"`       // folders and files in the folder quarantine
	Salvaged   int64  `json:"salvaged"`         // records read from damaged files since the start
}

// openEngine opens the engine that the configuration asks for.
func (s *Service) openEngine(ctx context.Context) (engine.Engine, error) {
	switch {
	case s.cfg.Engine != nil && s.cfg.DataDir != "":
		return nil, &background.FieldError{Field: "Engine", Problem: "set either Engine or DataDir"}
	case s.cfg.Engine != nil:
		return s.cfg.Engine, nil
	case s.cfg.DataDir == "":
		return memory.New(), nil
	}

	var err error
	s.dir, err = sqlite.Open(ctx, s.cfg.DataDir, sqlite.Config{LogQuota: s.cfg.LogQuota, Logger: s.cfg.Logger})
	return s.dir, err
}

// damages are the problems of Config.DataDir.
func (s *Service) damages() (found []wire.FileProblem) {
	if s.dir == nil {
		return nil
	}
	for _, p := range s.dir.Problems() {
		found = append(found, wire.FileProblem{File: filepath.Join(s.cfg.DataDir, p.Moved), Error: p.String()})
	}
	return found
}

// StorageErr returns why nothing is stored any more, until the service is opened
// again: an error that matches [engine.ErrStorageLost]. It is nil while storage is
// in order.
func (s *Service) StorageErr() error {
	if e, ok := s.engine.(interface{ Err() error }); ok {
		return e.Err()
	}
	return nil
}
