// Package sqlite provides an [engine.Engine] that stores runs, notices and schedules in an
// SQLite database, and output in files. Once a method has returned nil, its changes
// survive a crash of the process or the machine.
//
//	store, err := sqlite.Open(ctx, "data", sqlite.Config{})
//	…
//	defer store.Close()
//	manager, err := background.New(ctx, background.Config{Engine: store, …})
//
// # The data directory
//
//	lock                          locked by the process that uses the directory; contains its pid
//	state.db                      records, arguments, results, checkpoints, states, notices, schedules
//	state.mark                    identity of state.db, and the number of its transactions
//	runs/{folder}/output.log      the raw output of a run's attempt, see [engine.Run.Folder]
//	runs/{folder}/tail.{h}.{o}    a piece of the tail of the log, while the attempt runs and the head is full
//	runs/{folder}/result.json     how the run ended, an [engine.Envelope]
//
// Directories have the mode 0700, files 0600.
//
// # How it stores
//
// The database is in WAL mode with synchronous=FULL. One goroutine writes: it takes all
// waiting changes, stores them in one transaction, syncs once, and answers their
// callers. If one change fails, the others are stored one by one. See
// https://www.sqlite.org/wal.html.
//
// One process owns the directory, and in it one worker at a time owns the engine: Join
// returns [engine.ErrLocked] while another worker's lease lasts. So claims, permits,
// leases, wakes and deliveries of notices are kept only in memory, with a copy of the
// records of active runs. Renew writes nothing; a new Beat is stored every ten seconds.
//
// An append to a log goes to its file at once, and is synced when the run ends.
//
// # Damage and loss
//
// [Open] checks the structure of the whole database before it changes anything. It refuses
// a database that SQLite finds damaged. From the file state.mark it also detects a
// database that is missing, was replaced, or lacks acknowledged transactions: see
// [ErrDamaged]. It cannot detect changed bytes inside a value, because SQLite has no
// checksums. A single unreadable record or log counts as missing, is logged, and is
// counted in [Engine.Stats]. If the database is deleted or replaced while it is in use,
// the engine acknowledges nothing more: see [engine.ErrStorageLost].
//
// # Backups
//
// [Engine.Backup] writes a consistent copy while the engine is in use, and [Restore]
// turns it into a data directory. Such a copy has no state.mark. Runs that are queued
// or suspended in it may have been started since it was made, so they count as
// interrupted.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// DefaultLogQuota is the default of Config.LogQuota, in bytes.
const DefaultLogQuota = 1 << 30

// A Config configures an [Engine]. A field with the zero value has its default.
type Config struct {
	// LogQuota is the maximum size of the logs of all runs on disk, in bytes; 0:
	// DefaultLogQuota. To make room, the logs of ended runs are removed in the
	// order in which the runs ended; Tail then reports the whole log as dropped.
	// When only logs of active runs are left, Append returns an error matching
	// [engine.ErrQuota].
	LogQuota int64
	// Logger logs the problems that the engine worked around; nil: nothing is logged.
	Logger *slog.Logger
}

// An Engine stores runs in a data directory. Make one with [Open], and
// [Engine.Close] it when done. It is safe for concurrent use, and owns every
// goroutine it starts.
type Engine struct {
	*store
	scheduleStore
	valueStore
	lock    *os.File
	keeper  *keeper
	closing sync.Once
}

// A store is the part of an engine that all its other parts share.
type store struct {
	dir      string
	log      *slog.Logger
	problems *problems
	db       *database
	logs     *logs
	active   *registry
	feed     engine.Feed
}

var (
	_ engine.Engine = (*Engine)(nil)
	_ engine.Worker = (*worker)(nil)
	_ engine.Lease  = (*lease)(nil)
)

// Open opens the data directory dir, and creates it if it is missing. Only one process can
// have it open: another one gets an error that matches [engine.ErrLocked] and names the
// process. The error matches [ErrNewer], [ErrForeign] or [ErrDamaged] if this version must
// not touch the existing database, and [engine.ErrFull] if the disk is full.
//
// Runs that were running when an earlier process ended are orphans, which the first worker
// takes over. The engine does not use ctx after Open has returned.
func Open(ctx context.Context, dir string, cfg Config) (*Engine, error) {
	e, err := open(ctx, dir, cfg)
	if err != nil && fullDisk(dir, err) {
		return nil, fmt.Errorf("opening the data directory %s: %w: %w", dir, engine.ErrFull, err)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the data directory: %w", err)
	}
	return e, nil
}

func open(ctx context.Context, dir string, cfg Config) (*Engine, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	switch {
	case dir == "":
		return nil, errors.New("no directory: want its path")
	case cfg.LogQuota < 0:
		return nil, fmt.Errorf("invalid LogQuota %d: must not be negative", cfg.LogQuota)
	case cfg.LogQuota == 0:
		cfg.LogQuota = DefaultLogQuota
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(filepath.Join(dir, runsFolder), 0o700); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}

	st := &store{dir: dir, log: cfg.Logger, problems: &problems{log: cfg.Logger, met: make(map[[2]string]bool)}}
	e := &Engine{store: st, scheduleStore: scheduleStore{st}, valueStore: valueStore{st}, lock: lock}
	if err := e.start(cfg); err != nil {
		return nil, errors.Join(damaged(filepath.Join(dir, databaseName), err), lock.Close())
	}

	return e, nil
}

// start opens the database, loads the data that is kept in memory, and starts the
// goroutines.
func (e *Engine) start(cfg Config) (err error) {
	if e.db, err = openDatabase(e.dir, e.problems, e.log); err != nil {
		return err
	}
	e.logs = &logs{dir: filepath.Join(e.dir, runsFolder), quota: cfg.LogQuota, db: e.db, problems: e.problems}
	e.active = newRegistry()
	if err := e.restoreRuns(context.Background()); err != nil {
		return errors.Join(err, e.db.close())
	}

	e.keeper = &keeper{engine: e, closing: make(chan struct{}), done: make(chan struct{})}
	go e.keeper.run()
	return nil
}

// Close waits for calls in progress, stores what has not been stored yet, and releases the
// data directory. Later calls return [engine.ErrClosed], and the worker's lease has
// ended.
func (e *Engine) Close() (err error) {
	e.closing.Do(func() {
		e.active.close()
		e.keeper.close()
		if err = errors.Join(e.db.close(), e.lock.Close()); err != nil {
			err = fmt.Errorf("closing the data directory: %w", err)
		}
	})
	return err
}

// Watch implements [engine.Engine]. Events are published after their changes
// are stored.
func (e *Engine) Watch(ctx context.Context, session string) <-chan engine.Event {
	return e.feed.Watch(ctx, session)
}

// Now implements [engine.Engine].
func (e *Engine) Now(context.Context) (time.Time, error) { return time.Now(), nil }

// Recorded implements [engine.Engine]. It counts the content of result.json in
// addition to the record.
func (e *Engine) Recorded() int64 { return e.db.recorded.Load() }

// Counts implements [engine.Engine].
func (e *Engine) Counts() map[engine.Status]int {
	g, counts := e.active, map[engine.Status]int{}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.runs {
		counts[a.run.Status]++
	}
	return counts
}

// Err returns an error that says why the engine cannot store anything any more, or nil while it
// works. The error matches [engine.ErrStorageLost].
func (e *Engine) Err() error { return e.db.lost() }

// Check returns an error that says why nothing can be stored now: the error of Err, or one that
// matches [engine.ErrFull]. If the disk was full at the last change, or is almost full, Check
// makes a test write.
func (e *Engine) Check(ctx context.Context) error {
	if err := e.Err(); err != nil {
		return err
	}
	return e.db.room(ctx)
}
