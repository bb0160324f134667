package server

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/sqlite"
	"github.com/toolhost/toolhost/server/wire"
)

// Quotas of a Config.DataDir.
const (
	DefaultLogQuota    = 1 << 30 // bytes of the output of all runs
	DefaultRecordQuota = 1 << 30 // bytes of the records of all runs and schedules
)

// StorageStats say what of the stored runs was damaged or lost. They are zero for
// an engine that does not say.
type StorageStats struct {
	Failed     string `json:"failed,omitempty"` // why nothing is stored any more, until the server is restarted
	Problems   int    `json:"problems"`         // damage and losses since the start
	Quarantine int64  `json:"quarantine"`       // folders and files in the folder quarantine
	Salvaged   int64  `json:"salvaged"`         // records read from damaged files since the start
}

// storage is what the service asks the engine it opened itself, besides what it
// asks any engine.
type storage interface {
	engine.Engine
	Err() error // why nothing is stored any more; nil while all is in order
	Close() error
	storageStats() StorageStats
	findings() []wire.FileProblem
}

// openDir opens the engine for a data directory.
func openDir(ctx context.Context, dir string, logQuota int64, log *slog.Logger) (storage, error) {
	e, err := sqlite.Open(ctx, dir, sqlite.Config{LogQuota: logQuota, Logger: log})
	if err != nil {
		return nil, err
	}
	return directory{e, dir}, nil
}

// directory is the engine of a data directory.
type directory struct {
	*sqlite.Engine
	dir string
}

func (d directory) storageStats() StorageStats { return StorageStats(d.Stats()) }

func (d directory) findings() []wire.FileProblem {
	var found []wire.FileProblem
	for _, p := range d.Problems() {
		found = append(found, wire.FileProblem{File: filepath.Join(d.dir, p.Moved), Error: p.String()})
	}
	return found
}

// openEngine opens the engine that the configuration asks for; nil keeps runs in
// memory.
func (s *Service) openEngine(ctx context.Context) (engine engine.Engine, err error) {
	switch {
	case s.cfg.Engine != nil && s.cfg.DataDir != "":
		return nil, &background.FieldError{Field: "Engine", Problem: "set either Engine or DataDir"}
	case s.cfg.Engine != nil:
		return s.cfg.Engine, nil
	case s.cfg.DataDir == "":
		return nil, nil
	}

	s.storage, err = openDir(ctx, s.cfg.DataDir, s.cfg.Runs.LogQuota, s.cfg.Logger)
	return s.storage, err
}

// StorageErr returns why nothing is stored any more, until the service is opened
// again: an error that matches [engine.ErrStorageLost]. It is nil while
// storage is in order.
func (s *Service) StorageErr() error {
	engine, ok := s.engine.(interface{ Err() error })
	if !ok {
		return nil
	}
	return engine.Err()
}
