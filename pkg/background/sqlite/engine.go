// Package sqlite is a [background.Engine] that keeps runs, notices and
// schedules in an SQLite database, and output in files. What a method stored
// before it returned nil survives the end of the process and of the machine.
//
//	engine, err := sqlite.Open(ctx, "data", sqlite.Config{})
//	…
//	defer engine.Close()
//	manager, err := background.New(ctx, background.Config{Engine: engine, …})
//
// # The data directory
//
//	lock                          held by the process that uses the directory; its pid
//	state.db                      records, arguments, results, checkpoints, notices, schedules
//	state.mark                    which database that is, and how many transactions it has
//	runs/{folder}/output.log      the raw output of a run's attempt, see [background.Run.Folder]
//	runs/{folder}/tail.{h}.{o}    while it runs and the head of the log is full: a piece of its tail
//	runs/{folder}/result.json     how the run ended, a [background.Envelope]
//	quarantine/                   files of damaged records, damaged logs, folders without a record
//	state.db.corrupt-{time}       a damaged database that was set aside
//	state.db.lost-{time}…         what was beside a database that is missing
//	state.db-wal.torn-{time}      a copy of a torn write-ahead log
//
// Directories have the mode 0700, files 0600.
//
// # How it stores
//
// The database is in WAL mode with synchronous=FULL. One goroutine writes: it
// takes the changes of all callers that wait, stores them in one transaction,
// syncs once, and then tells each caller. A change that fails does so alone:
// the others are then stored one by one. See https://www.sqlite.org/wal.html
// and https://www.sqlite.org/pragma.html#pragma_synchronous.
//
// Who holds a lease, and what the holder last said of itself, is kept in
// memory: one process has the directory, so leases of an earlier one have
// ended. Extend writes nothing; what is new in a Beat is stored every
// ten seconds.
//
// An append to a log goes to its file at once, and is synced when the run
// ends. After the death of the process the log is there as it was appended.
//
// # Damage and loss
//
// A record or schedule that cannot be read is moved to the table quarantine, and
// a log that is not what its record says to the folder quarantine; the rest goes
// on. A database SQLite cannot read is set aside, and a new one is begun with
// every record that can be read from it. Only a database of another program or
// of a newer version of this one is refused.
//
// After each transaction its number is written to state.mark. [Open] compares
// the two: a database that is missing, empty, another one, or has fewer
// transactions than its mark is reported. What a torn write-ahead log still has
// is read. Runs that are queued in such a database may have been started since,
// so they count as interrupted ones.
//
// A folder of a run is deleted only if the deletion of its record says so. A
// folder without a record is moved to quarantine, and never deleted.
//
// When the database is deleted or replaced while it is in use, nothing is
// acknowledged any more: see [background.ErrStorageLost].
//
// All of that is logged, kept for [Engine.Problems] and counted in
// [Engine.Stats].
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/toolhost/toolhost/pkg/background"
)

// DefaultLogQuota is how many bytes the logs of all runs may take on disk.
const DefaultLogQuota = 1 << 30

// ErrClosed: the engine was closed. It matches [background.ErrClosed]: who closes
// an engine has closed its manager.
var ErrClosed = fmt.Errorf("%w: engine closed", background.ErrClosed)

// A Config configures an [Engine]. The zero value of a field is its default.
type Config struct {
	// LogQuota is how many bytes the logs of all runs may take on disk; 0:
	// DefaultLogQuota. Logs of runs that ended first go first to make room:
	// their Tail then says that all of it was dropped. When only logs of
	// active runs are left, Append returns an error matching
	// [background.ErrQuota].
	LogQuota int64
	// Logger is told of what is wrong and was worked around; nil: nobody.
	Logger *slog.Logger
}

// An Engine stores runs in a data directory. Make one with [Open], and
// [Engine.Close] it when done. It is safe for concurrent use, and owns every
// goroutine it starts.
type Engine struct {
	dir   string
	log   *slog.Logger
	quota int64
	lock  *os.File
	feed  background.Feed

	ops     chan *op
	readers chan *conn
	runs    locks // serializes what changes the attempt of one run

	mu       sync.Mutex
	live     map[string]*live // the runs this process holds a lease of
	problems []Problem
	met      int      // problems, those that are not remembered too
	removed  []string // runs whose folders were removed, which is not stored yet

	files    []watched             // of the database
	failed   atomic.Pointer[error] // why nothing is stored any more; nil: it is
	mark     *markFile             // of the writer
	unmarked bool                  // the mark could not be written; said once
	swept    atomic.Bool           // folders were looked at
	aside    atomic.Int64          // what there is in the quarantine
	salvaged atomic.Int64          // records read from damaged files

	used     atomic.Int64 // bytes of logs on disk
	evicting sync.Mutex

	recorded atomic.Int64 // bytes of records, as the last transaction left them

	life    sync.Mutex
	closed  bool
	calls   sync.WaitGroup // calls of methods, and the keeper
	closing chan struct{}
	wrote   chan struct{} // closed when the writer has ended
}

var _ background.Engine = (*Engine)(nil)

// Open opens the data directory dir, and makes it if it is not there. One
// process can have it open: for another one the error matches
// [background.ErrLocked] and names the process. The error matches [ErrNewer]
// or [ErrForeign] if there is a database this version must not touch.
//
// Runs that were running when an earlier process ended can be claimed at once.
// What that process left behind is removed, or set aside, in the background. The values of
// ctx and its end do not matter once Open has returned.
func Open(ctx context.Context, dir string, cfg Config) (*Engine, error) {
	e, err := open(ctx, dir, cfg)
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
		return nil, &background.FieldError{Field: "dir", Problem: "required"}
	case cfg.LogQuota < 0:
		return nil, &background.FieldError{Field: "LogQuota", Problem: fmt.Sprintf("must not be negative, is %d", cfg.LogQuota)}
	case cfg.LogQuota == 0:
		cfg.LogQuota = DefaultLogQuota
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		dir: dir, log: cfg.Logger, quota: cfg.LogQuota,
		ops: make(chan *op, maxBatch), live: make(map[string]*live),
		closing: make(chan struct{}), wrote: make(chan struct{}),
	}
	if err := os.MkdirAll(e.path(runsFolder), 0o700); err != nil {
		return nil, err
	}
	var err error
	if e.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	if err := e.start(); err != nil {
		return nil, errors.Join(err, e.lock.Close())
	}
	return e, nil
}

// start opens the connections and starts the goroutines.
func (e *Engine) start() error {
	w, err := e.openDatabase()
	if err != nil {
		return err
	}
	e.readers = make(chan *conn, max(2, runtime.GOMAXPROCS(0)))
	for range cap(e.readers) {
		r, err := connect(e.path(databaseName))
		if err == nil {
			err = r.script("PRAGMA busy_timeout = 10000; PRAGMA query_only = ON; PRAGMA trusted_schema = OFF")
		}
		if err != nil {
			return errors.Join(err, w.close(), e.closeReaders())
		}
		e.readers <- r
	}
	if err := syncDir(e.dir); err != nil {
		return errors.Join(err, w.close(), e.closeReaders())
	}
	if err := e.read(context.Background(), e.countLogs); err != nil {
		e.log.Warn("logs of earlier processes not counted; the next start tries again", "error", err)
	}
	go e.writeAll(w)
	e.calls.Add(1)
	go e.keep()
	return nil
}

// path returns the path of something in the data directory.
func (e *Engine) path(names ...string) string {
	return filepath.Join(append([]string{e.dir}, names...)...)
}

// enter begins a call of a method. The caller calls e.calls.Done when it is over.
func (e *Engine) enter() error {
	e.life.Lock()
	defer e.life.Unlock()
	if e.closed {
		return ErrClosed
	}
	e.calls.Add(1)
	return nil
}

// Close waits for calls that go on, stores what is not stored yet, and gives
// the data directory up. Later calls return [ErrClosed]; leases have ended.
func (e *Engine) Close() error {
	e.life.Lock()
	if e.closed {
		e.life.Unlock()
		<-e.wrote
		return nil
	}
	e.closed = true
	close(e.closing)
	e.life.Unlock()
	e.calls.Wait()
	err := e.closeReaders()
	close(e.ops)
	<-e.wrote
	if err := errors.Join(err, e.lock.Close()); err != nil {
		return fmt.Errorf("closing the data directory: %w", err)
	}
	return nil
}

func (e *Engine) closeReaders() error {
	var errs []error
	for range cap(e.readers) {
		select {
		case r := <-e.readers:
			errs = append(errs, r.close())
		default:
		}
	}
	return errors.Join(errs...)
}

// read calls f with a connection to read from. f must not hold on to it.
func (e *Engine) read(ctx context.Context, f func(c *conn) error) error {
	select {
	case c := <-e.readers:
		defer func() { e.readers <- c }()
		err := f(c)
		e.suspect(err)
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Watch implements [background.Engine]. Events are published after what they
// say is stored.
func (e *Engine) Watch(ctx context.Context, session string) <-chan background.Event {
	return e.feed.Watch(ctx, session)
}
