package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/pkg/background/sqlite"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/wire"
)

// Quotas of a Config.DataDir.
const (
	DefaultLogQuota    = 1 << 30 // bytes of the output of all runs
	DefaultRecordQuota = 1 << 30 // bytes of the records of all runs and schedules
)

// ErrDamaged is the error of Open for a Config.DataDir whose database is damaged, or not
// as it was left.
var ErrDamaged = sqlite.ErrDamaged

// StorageStats report stored state that was damaged or lost. They are zero for an engine
// that does not report it.
type StorageStats struct {
	Failed   string `json:"failed,omitempty"` // why nothing can be stored until the server is restarted
	Problems int    `json:"problems"`         // damaged records, logs and files found since the start
}

// store is where runs and schedules are stored.
type store struct {
	engine engine.Engine
	dir    *sqlite.Engine // the engine of Config.DataDir; nil with another one
	lock   io.Closer      // lock of a Config.DataDir without an engine; else nil
	audit  record.Auditor
}

// openStore opens the engine that the configuration asks for.
func openStore(ctx context.Context, cfg Config) (s store, err error) {
	switch {
	case cfg.Engine != nil:
		s.engine = cfg.Engine
		if cfg.DataDir != "" {
			if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
				return s, err
			}
			s.lock, err = sqlite.Lock(cfg.DataDir)
		}
	case cfg.DataDir == "":
		s.engine = memory.New()
	default:
		s.dir, err = sqlite.Open(ctx, cfg.DataDir, sqlite.Config{LogQuota: cfg.LogQuota, Logger: cfg.Logger})
		s.engine = s.dir
	}
	return s, err
}

// close closes what openStore has opened.
func (s *store) close() error {
	var errs []error
	if s.dir != nil {
		errs = append(errs, s.dir.Close())
	}
	if s.lock != nil {
		if err := s.lock.Close(); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// kept reports whether runs have files that an operator can open.
func (s *store) kept() bool { return s.dir != nil }

// damages returns the problems of dataDir.
func (s *store) damages(dataDir string) (found []wire.FileProblem) {
	if s.dir == nil {
		return nil
	}
	stats := s.dir.Stats()
	if stats.Failed != "" {
		found = append(found, wire.FileProblem{File: dataDir, Error: stats.Failed})
	} else if stats.Problems > 0 {
		found = append(found, wire.FileProblem{File: dataDir, Error: fmt.Sprintf("%d stored records or files are damaged, and count as missing: the log names them", stats.Problems)})
	}
	return found
}

// StorageErr returns why nothing can be stored until the service is opened again: an
// error that matches [engine.ErrStorageLost]. It is nil while storage is in order.
func (s *Service) StorageErr() error {
	if e, ok := s.engine.(interface{ Err() error }); ok {
		return e.Err()
	}
	return nil
}

// readyWithin is how long the engine may take to answer.
const readyWithin = 3 * time.Second

// ErrUnreachable means that the engine of runs does not answer, for example because its
// database is down. The log says why. It matches [engine.ErrUnavailable].
var ErrUnreachable = fmt.Errorf("the engine of runs does not answer: %w", engine.ErrUnavailable)

// ErrFull means that the disk is full. The server continues by itself once there is room.
// It matches [engine.ErrFull].
var ErrFull = fmt.Errorf("%w: no run, message, value or decision can be stored, and the ends of runs are only in memory: "+
	"make room in the data folder, and do not end the server before", engine.ErrFull)

// Ready returns why nothing can be stored now: an error of [Service.StorageErr],
// [ErrFull] or [ErrUnreachable].
func (s *Service) Ready(ctx context.Context) error {
	if err := s.StorageErr(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if e, ok := s.engine.(interface{ Check(context.Context) error }); ok {
		if err := e.Check(ctx); errors.Is(err, engine.ErrFull) {
			return ErrFull
		}
	}
	if _, err := s.engine.Now(ctx); err != nil {
		s.log.Warn("the engine does not answer", "error", err)
		return ErrUnreachable
	}
	return nil
}
