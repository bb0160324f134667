// Package storage opens the engine that runs and schedules are stored in, and reports
// whether it can store anything.
package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/pkg/background/sqlite"
	"github.com/toolhost/toolhost/server/wire"
)

// Config says where runs are stored. The zero value means in memory.
type Config struct {
	Engine   engine.Engine // engine of the caller, who closes it; nil means one in DataDir
	DataDir  string        // data folder; empty means in memory, unless there is an Engine
	LogQuota int64         // maximum size of the output of all runs in DataDir, in bytes; 0 means 1 GiB
	Logger   *slog.Logger
}

// A Store is where runs and schedules are stored. It is safe for concurrent use.
type Store struct {
	Engine engine.Engine

	cfg  Config
	dir  *sqlite.Engine // the engine of the data folder; nil if there is another one
	lock io.Closer      // lock of a data folder without an engine; else nil
}

// Stats count stored state that was damaged or lost.
type Stats = sqlite.Stats

// Open opens a Store. The error matches [engine.ErrLocked] if another process uses the data
// folder, and [ErrDamaged] if its database is damaged.
func Open(ctx context.Context, cfg Config) (s *Store, err error) {
	s = &Store{cfg: cfg, Engine: cfg.Engine}
	switch {
	case cfg.DataDir == "":
		if s.Engine == nil {
			s.Engine = memory.New()
		}
	case s.Engine == nil:
		s.dir, err = sqlite.Open(ctx, cfg.DataDir, sqlite.Config{LogQuota: cfg.LogQuota, Logger: cfg.Logger})
		s.Engine = s.dir
	default:
		if err = os.MkdirAll(cfg.DataDir, 0o700); err == nil {
			s.lock, err = sqlite.Lock(cfg.DataDir)
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Close closes what Open has opened.
func (s *Store) Close() error {
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

// HasFiles reports whether the output of runs is in files of the data folder.
func (s *Store) HasFiles() bool { return s.dir != nil }

// Stats returns the current counts. They are zero unless runs are in the data folder.
func (s *Store) Stats() Stats {
	if s.dir == nil {
		return Stats{}
	}
	return s.dir.Stats()
}

// Problems returns the problems of the data folder, and whether its disk is full.
func (s *Store) Problems() []wire.FileProblem {
	var text string
	switch stats := s.Stats(); {
	case stats.Failed != "":
		text = stats.Failed
	case s.full(context.Background()):
		text = ErrFull.Error()
	case stats.Problems > 0:
		text = fmt.Sprintf("%d stored records or files are damaged, and count as missing: the log names them", stats.Problems)
	default:
		return nil
	}
	return []wire.FileProblem{{File: cmp.Or(s.cfg.DataDir, "storage"), Error: text}}
}

// full reports whether nothing can be stored because the disk is full. It is false if the
// engine does not answer in time.
func (s *Store) full(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	e, ok := s.Engine.(interface{ Check(context.Context) error })
	return ok && errors.Is(e.Check(ctx), engine.ErrFull)
}

// readyWithin is how long the engine may take to answer.
const readyWithin = 3 * time.Second

// ErrDamaged means that the database is damaged, missing, or changed since its last use.
var ErrDamaged = sqlite.ErrDamaged

// ErrUnreachable means that the engine does not answer. The log says why. It matches
// [engine.ErrUnavailable].
var ErrUnreachable = fmt.Errorf("the engine for background runs does not answer: %w", engine.ErrUnavailable)

// ErrFull means that the disk is full. It matches [engine.ErrFull].
var ErrFull = fmt.Errorf("%w: no run, message, value or decision can be stored, and the ends of runs are only in memory: "+
	"make room in the data folder, and do not end the server before", engine.ErrFull)

// Err returns why nothing can be stored until the store is opened again: an error that matches
// [engine.ErrStorageLost]. Otherwise it returns nil.
func (s *Store) Err() error {
	if e, ok := s.Engine.(interface{ Err() error }); ok {
		return e.Err()
	}
	return nil
}

// Ready returns why nothing can be stored now: the error of Err, [ErrFull] or
// [ErrUnreachable]. It is nil if storage works.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if s.full(ctx) {
		return ErrFull
	}
	if _, err := s.Engine.Now(ctx); err != nil {
		s.cfg.Logger.Warn("the engine does not answer", "error", err)
		return ErrUnreachable
	}
	return nil
}
