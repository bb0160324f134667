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

// store is where runs and schedules are.
type store struct {
	engine engine.Engine
	dir    *sqlite.Engine // the engine, if it is that of Config.DataDir; else nil
	audit  auditor
}

// openStore opens the engine that the configuration asks for.
func openStore(ctx context.Context, cfg Config) (store, error) {
	switch {
	case cfg.Engine != nil && cfg.DataDir != "":
		return store{}, &background.FieldError{Field: "Engine", Problem: "set either Engine or DataDir"}
	case cfg.Engine != nil:
		return store{engine: cfg.Engine}, nil
	case cfg.DataDir == "":
		return store{engine: memory.New()}, nil
	}

	dir, err := sqlite.Open(ctx, cfg.DataDir, sqlite.Config{LogQuota: cfg.LogQuota, Logger: cfg.Logger})
	return store{engine: dir, dir: dir}, err
}

// kept reports whether runs have files that an operator can open.
func (s *store) kept() bool { return s.dir != nil }

// damages are the problems of dataDir.
func (s *store) damages(dataDir string) (found []wire.FileProblem) {
	if s.dir == nil {
		return nil
	}
	for _, p := range s.dir.Problems() {
		found = append(found, wire.FileProblem{File: filepath.Join(dataDir, p.Moved), Error: p.String()})
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
