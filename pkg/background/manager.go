package background

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"
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
	born   time.Time

	mu      sync.Mutex
	closing bool
	tasks   map[string]*task         // runs that this manager has to do with
	calls   map[*task]struct{}       // foreground calls that are not parked
	keys    map[string]chan struct{} // idempotency keys being spawned; closed when that is over
	blocked map[string][]*task       // queued runs that wait for the end of a run, by its id
	stats   Stats
	running sync.WaitGroup // one for each goroutine that executes a run

	looking   chan struct{} // has an element for each large record that a check looks at
	notices   *notifier
	scheduler scheduler
	unplan    func()        // ends the schedules
	planned   chan struct{} // closed when they have ended
	quit      func()        // ends the keeper, and what else has not ended
	kept      chan struct{} // closed when the keeper has ended
}

// New returns a Manager, after it has taken up what an earlier process left in
// the engine; no other may use that at the same time. Runs that were queued
// wait for their permits again. Those that were running are queued again if
// [Config.Readmit] lets them, and end as failed with [KindOrphaned] if not, or
// as canceled if that was asked for; their output is kept. Notices that were
// not acknowledged are handed to [Config.OnNotice] again.
//
// Runs may be executed before New returns. They see the values of ctx, but not
// its end. The error, if any, matches [ErrInvalid], or says why the engine
// could not be read.
func New(ctx context.Context, cfg Config) (*Manager, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("background: %w", err)
	}
	m := &Manager{
		cfg:     cfg,
		engine:  cfg.Engine,
		log:     cfg.Logger,
		base:    context.WithoutCancel(ctx),
		limits:  newLimits(cfg),
		born:    time.Now(),
		tasks:   make(map[string]*task),
		calls:   make(map[*task]struct{}),
		keys:    make(map[string]chan struct{}),
		blocked: make(map[string][]*task),
		stats:   Stats{Failed: make(map[ErrorKind]int64)},
		looking: make(chan struct{}, runtime.GOMAXPROCS(0)),
		notices: newNotifier(),
		planned: make(chan struct{}),
		kept:    make(chan struct{}),
	}
	if err := m.engine.Limit(ctx, Quota{Max: cfg.RecordQuota, Each: cfg.OwnerQuota, Owner: cfg.Owner}); err != nil {
		return nil, fmt.Errorf("background: counting what an earlier process left: %w", err)
	}
	if err := m.recover(ctx); err != nil {
		return nil, fmt.Errorf("background: %w", err)
	}
	keeping, quit := context.WithCancel(m.base)
	planning, unplan := context.WithCancel(keeping)
	m.quit, m.unplan = quit, unplan
	go m.keep(keeping)
	go m.notify(keeping)
	go func() {
		defer close(m.planned)
		m.keepSchedules(planning)
	}()
	return m, nil
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
				if ctx.Err() != nil {
					return
				}
				m.heartbeat(ctx, t)
			}
		case <-prune.C:
			m.prune(ctx)
		}
	}
}

// prune removes the records that are not kept any longer.
func (m *Manager) prune(ctx context.Context) {
	now := time.Now()
	_, err := m.engine.Prune(ctx, Retention{Before: now.Add(-m.cfg.Retention), Keep: m.cfg.RetainRuns, Notices: now.Add(-m.cfg.NoticeTTL)})
	if err != nil && ctx.Err() == nil {
		m.log.Warn("background records not pruned", "error", err)
	}
}
