package background

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A Manager runs an [Executor] in the background, for many sessions at once.
// Make one with [New], and [Manager.Close] it when done. It is safe for
// concurrent use, and owns every goroutine it starts.
//
// It is a worker of its engine, which several Managers can share, in one process
// or in several, if the engine supports that.
type Manager struct {
	*core
	member    *member    // the lease on the engine
	runs      *registry  // the runs that this worker works on
	admission *admission // gives runs their slots, and claims queued runs
	worker    *worker    // does the work of runs
	reader    *reader    // reads runs of any worker
	notifier  *notifier  // hands out notices
	scheduler *scheduler // fires schedules
	keeper    *keeper    // renews the lease and stores ends
	given     givenConfig
}

// core is the part of a Manager that all its other parts share.
type core struct {
	config        atomic.Pointer[Config]
	engine        engine.Engine
	log           *slog.Logger
	base          context.Context // never done; carries the values of New's context
	born          time.Time       // time of creation
	counters      counters
	underPressure atomic.Bool // at least three quarters of the slots of this process are taken
}

// cfg returns the current configuration, with defaults in place of zero values. It must
// not be changed.
func (c *core) cfg() *Config { return c.config.Load() }

// New joins the engine, takes over the runs of dead workers, such as an earlier
// process, and returns a Manager. Runs that may be run again are queued again. The
// others end as failed with [engine.KindOrphaned], or as canceled if a stop was
// requested. Their output is kept. Queued runs keep their position.
//
// Runs may be executed before New returns. Their contexts have the values of ctx, but
// do not end with it. The error, if any, matches [ErrInvalid], or says why the engine
// could not be used.
func New(ctx context.Context, cfg Config) (*Manager, error) {
	asked := cfg
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("background: %w", err)
	}

	c := &core{engine: cfg.Engine, log: cfg.Logger, base: context.WithoutCancel(ctx), born: time.Now()}
	c.config.Store(&cfg)
	asked.Engine = cfg.Engine
	c.counters.stats.Failed, c.counters.onEnd = make(map[engine.ErrorKind]int64), cfg.OnEnd
	keeping, quit := context.WithCancel(c.base)
	m := &Manager{core: c, member: &member{core: c}, runs: &registry{tasks: make(map[string]*task)}, given: givenConfig{cfg: asked}}
	m.admission = &admission{core: c, member: m.member, runs: m.runs, turn: make(turn, 1)}
	m.reader = &reader{core: c, runs: m.runs, quit: keeping.Done()}
	m.worker = &worker{core: c, member: m.member, runs: m.runs, admission: m.admission, reader: m.reader, pool: newPool()}
	m.scheduler = newScheduler(c, m.admission, m.worker)
	m.admission.begin, m.worker.schedules = m.worker.execute, m.scheduler
	m.keeper = &keeper{core: c, member: m.member, runs: m.runs, admission: m.admission, worker: m.worker, scheduler: m.scheduler, quit: quit, ended: make(chan struct{})}
	m.member.lost = m.keeper.abortAll

	if err := m.member.join(ctx); err != nil {
		return nil, fmt.Errorf("background: joining the engine: %w", err)
	}
	if err := m.keeper.takeOver(ctx); err != nil {
		return nil, fmt.Errorf("background: taking over the runs of an earlier process: %w", err)
	}
	events := m.engine.Watch(keeping, "")
	m.admission.claim()

	m.notifier = startNotifier(keeping, c, m.member, m.runs)
	m.keeper.notifier = m.notifier
	m.scheduler.start(keeping)
	m.keeper.heartbeat(ctx) // finds out what is left in the queue
	go m.keeper.run(keeping, events)
	return m, nil
}

// Reoffer passes the current result of Config.Offer to the engine now, instead of at
// the next heartbeat, and claims the queued runs that this process can now start.
func (m *Manager) Reoffer(ctx context.Context) error {
	changed, err := m.member.reoffer(ctx)
	if changed {
		m.admission.expect(true)
	}
	return err
}
