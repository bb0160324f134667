package background

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// A Manager runs an [Executor] in the background, for many sessions at once.
// Make one with [New], and [Manager.Close] it when done. It is safe for
// concurrent use, and owns every goroutine it starts.
type Manager struct {
	cfg    Config
	engine Engine
	log    *slog.Logger
	base   context.Context // never done; its values are those of New's
	limits *limits

	mu      sync.Mutex
	closing bool
	tasks   map[string]*task         // runs that are executed here, or whose end is not stored yet
	keys    map[string]chan struct{} // idempotency keys being spawned; closed when that is over
	running sync.WaitGroup           // one for each goroutine that executes a run

	quit func()        // ends the keeper
	kept chan struct{} // closed when the keeper has ended
}

// New returns a Manager. Runs see the values of ctx, but not its end. The
// error, if any, matches [ErrInvalid].
func New(ctx context.Context, cfg Config) (*Manager, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("background: %w", err)
	}
	m := &Manager{
		cfg:    cfg,
		engine: cfg.Engine,
		log:    cfg.Logger,
		base:   context.WithoutCancel(ctx),
		limits: newLimits(cfg.PerSession, cfg.PerHost),
		tasks:  make(map[string]*task),
		keys:   make(map[string]chan struct{}),
		kept:   make(chan struct{}),
	}
	keeping, quit := context.WithCancel(m.base)
	m.quit = quit
	go m.keep(keeping)
	return m, nil
}

// A SpawnRequest says what to run. Only Tool is required.
type SpawnRequest struct {
	Tool           string          // trimmed
	Args           json.RawMessage // any JSON value; nil: {}
	Title          string          // at most 120 characters; "": "Background {tool}"
	Silent         bool            // the record says that no completion is to be signaled
	Timeout        time.Duration   // hard deadline; 0: Config.Timeout; at most Config.MaxTimeout
	IdempotencyKey string          // at most 128 characters; "": none
}

// A Spawned is the run a spawn made, or found.
type Spawned struct {
	Run
	Reused bool // an earlier run with the same idempotency key, tool and arguments
}

// Spawn stores a run and starts it. It returns as soon as the record is
// stored; the run does not depend on ctx.
//
// If the session has a run with the same idempotency key, tool and arguments,
// Spawn returns that one instead. With the same key and another tool or other
// arguments, the error matches [ErrKeyReused].
//
// If there is no room, the error is a *[LimitError], and nothing is stored. A
// bad request is a *[FieldError]; after Close the error is [ErrClosed].
func (m *Manager) Spawn(ctx context.Context, session string, req SpawnRequest) (Spawned, error) {
	run, err := m.newRun(session, req)
	if err != nil {
		return Spawned{}, fmt.Errorf("spawn: %w", err)
	}
	if req.IdempotencyKey != "" {
		unlock, err := m.lockKey(ctx, session, req.IdempotencyKey)
		if err != nil {
			return Spawned{}, fmt.Errorf("spawn: %w", err)
		}
		defer unlock()
		earlier, ok, err := m.reuse(ctx, run)
		if err != nil {
			return Spawned{}, fmt.Errorf("spawn: %w", err)
		}
		if ok {
			return earlier, nil
		}
	}
	if err := m.start(ctx, run); err != nil {
		return Spawned{}, fmt.Errorf("spawn: %w", err)
	}
	return Spawned{Run: run}, nil
}

// newRun makes the record of a run, or says what is wrong with the request.
func (m *Manager) newRun(session string, req SpawnRequest) (Run, error) {
	tool, title := strings.TrimSpace(req.Tool), strings.TrimSpace(req.Title)
	args := bytes.Clone(req.Args)
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	timeout := req.Timeout
	if timeout == 0 {
		timeout = m.cfg.Timeout
	}
	if title == "" {
		title = clip("Background "+tool, maxTitle)
	}
	switch {
	case session == "":
		return Run{}, &FieldError{"session", "required"}
	case tool == "":
		return Run{}, &FieldError{"tool", "required"}
	case !json.Valid(args):
		return Run{}, &FieldError{"args", "not valid JSON"}
	case utf8.RuneCountInString(title) > maxTitle:
		return Run{}, &FieldError{"title", fmt.Sprintf("longer than %d characters", maxTitle)}
	case utf8.RuneCountInString(req.IdempotencyKey) > maxKey:
		return Run{}, &FieldError{"idempotency_key", fmt.Sprintf("longer than %d characters", maxKey)}
	case timeout < 0 || timeout > m.cfg.MaxTimeout:
		return Run{}, &FieldError{"timeout_seconds", fmt.Sprintf("must be between 1 and %.0f", m.cfg.MaxTimeout.Seconds())}
	}
	id, err := newID()
	return Run{
		ID: id, Session: session, Tool: tool, Args: args, Title: title,
		Origin: OriginSpawned, Status: StatusQueued,
		IdempotencyKey: req.IdempotencyKey, SignalOnCompletion: !req.Silent,
		Timeout: timeout, OutputCap: m.cfg.OutputCap, CreatedAt: time.Now(),
	}, err
}

// lockKey waits until no other spawn uses the key, so that of two at once the
// second finds the run of the first.
func (m *Manager) lockKey(ctx context.Context, session, key string) (unlock func(), err error) {
	key = fmt.Sprintf("%d:%s%s", len(session), session, key)
	for {
		m.mu.Lock()
		busy := m.keys[key]
		if busy == nil {
			m.keys[key] = make(chan struct{})
			m.mu.Unlock()
			return func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				close(m.keys[key])
				delete(m.keys, key)
			}, nil
		}
		m.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// reuse looks for an earlier run with the key of run.
func (m *Manager) reuse(ctx context.Context, run Run) (earlier Spawned, ok bool, err error) {
	runs, err := m.list(ctx, Query{Session: run.Session, IdempotencyKey: run.IdempotencyKey, Limit: 1})
	if err != nil || len(runs) == 0 {
		return Spawned{}, false, err
	}
	if runs[0].Tool != run.Tool || !sameJSON(runs[0].Args, run.Args) {
		return Spawned{}, false, fmt.Errorf("%w: %s", ErrKeyReused, runs[0].ID)
	}
	return Spawned{Run: runs[0], Reused: true}, true, nil
}

// sameJSON reports whether two texts are the same JSON value.
func sameJSON(a, b json.RawMessage) bool {
	decode := func(text json.RawMessage) (v any) {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		if dec.Decode(&v) != nil {
			return nil
		}
		return v
	}
	return bytes.Equal(a, b) || reflect.DeepEqual(decode(a), decode(b))
}

// start takes the permits of a run, stores its record and starts its
// goroutine. If it fails, nothing of that is left.
func (m *Manager) start(ctx context.Context, run Run) error {
	t := newTask(m.base, run)
	m.mu.Lock()
	if m.closing {
		m.mu.Unlock()
		return ErrClosed
	}
	if err := m.limits.acquire(run.Session, run.ID); err != nil {
		m.mu.Unlock()
		return err
	}
	m.tasks[run.ID] = t
	m.running.Add(1)
	m.mu.Unlock()

	if err := m.engine.Submit(ctx, run); err != nil {
		m.forget(t)
		m.limits.release(run.Session, run.ID)
		close(t.done)
		m.running.Done()
		return fmt.Errorf("storing the run: %w", err)
	}
	m.log.Info("background run spawned", "task_id", run.ID, "session", run.Session, "tool", run.Tool, "args", Redact(run.Args))
	go m.execute(t)
	return nil
}

func (m *Manager) task(id string) *task {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tasks[id]
}

func (m *Manager) forget(t *task) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.tasks, t.run.ID)
}

// allTasks returns the tasks of the moment.
func (m *Manager) allTasks() []*task {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.tasks))
}

// keep extends the leases of running runs, stores ends that could not be
// stored, and removes old records, until ctx is done.
func (m *Manager) keep(ctx context.Context) {
	defer close(m.kept)
	heartbeat := time.NewTicker(HeartbeatEvery)
	defer heartbeat.Stop()
	prune := time.NewTicker(pruneEvery)
	defer prune.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-heartbeat.C:
			for _, t := range m.allTasks() {
				m.heartbeat(t)
			}
		case <-prune.C:
			m.prune("")
		}
	}
}

// prune removes the records that are not kept any longer: of one session, or
// of all.
func (m *Manager) prune(session string) {
	_, err := m.engine.Prune(m.base, Retention{Session: session, Before: time.Now().Add(-m.cfg.Retention), Keep: m.cfg.RetainRuns})
	if err != nil {
		m.log.Warn("background records not pruned", "session", session, "error", err)
	}
}

// Close ends the manager. It admits no more runs and waits for the active ones
// until ctx is done. Then it interrupts those that are left: their context is
// canceled with the cause [ErrClosed], and they end as failed with
// [KindInterrupted]. It returns nil when they have ended, and an error matching
// [ErrStillRunning] with the ids of those that have not after the grace and a
// second more: their executor ignores its context.
//
// Records can still be read afterwards. Close may be called more than once.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closing = true
	m.mu.Unlock()
	tasks := m.allTasks()
	if !allDone(tasks, ctx.Done()) {
		m.log.Warn("background runs are interrupted by the shutdown", "active", m.limits.active())
		for _, t := range tasks {
			t.interrupt()
		}
	}
	patience := time.NewTimer(m.cfg.Grace + time.Second)
	defer patience.Stop()
	ended := allDone(tasks, patience.C)
	m.quit()
	<-m.kept
	if ended {
		m.running.Wait()
		return m.storeRest()
	}
	var ids []string
	for _, t := range tasks {
		if !t.ended() {
			ids = append(ids, t.run.ID)
		}
	}
	slices.Sort(ids)
	return fmt.Errorf("%w: %s", ErrStillRunning, strings.Join(ids, ", "))
}

// storeRest tries once more to store the ends that could not be stored.
func (m *Manager) storeRest() error {
	var errs []error
	for _, t := range m.allTasks() {
		if err := m.retry(t); err != nil {
			errs = append(errs, fmt.Errorf("storing the end of run %s: %w", t.run.ID, err))
		}
	}
	return errors.Join(errs...)
}

// allDone waits until all tasks have ended, or until enough delivers or is
// closed, and reports which.
func allDone[T any](tasks []*task, enough <-chan T) bool {
	for _, t := range tasks {
		select {
		case <-t.done:
			continue
		default:
		}
		select {
		case <-t.done:
		case <-enough:
			return false
		}
	}
	return true
}
