package background

import (
	"context"
	"fmt"
	"log/slog"
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
	admission *admission // lets runs in, and claims them from the queue
	worker    *worker    // does their work
	reader    *reader    // shows runs, wherever they are worked on
	notifier  *notifier  // hands out notices
	scheduler *scheduler // fires schedules

	quit func()        // ends the keeper
	idle chan struct{} // takes an element when the keeper does not wait for the engine
	kept chan struct{} // closed when the keeper has ended
}

// core is what all parts of a Manager share.
type core struct {
	cfg      Config
	engine   engine.Engine
	log      *slog.Logger
	base     context.Context // never done; it has the values of New's context
	counters counters
}

// New joins the engine and returns a Manager, after it has taken over the runs
// that dead workers left, such as an earlier process: they are queued again if
// they may be run again, and end as failed with [engine.KindOrphaned] if not, or
// as canceled if that was asked for; their output is kept. Runs that were queued
// wait for their turn.
//
// Runs may be executed before New returns. They see the values of ctx, but not
// its end. The error, if any, matches [ErrInvalid], or says why the engine
// could not be used.
func New(ctx context.Context, cfg Config) (*Manager, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("background: %w", err)
	}

	c := &core{cfg: cfg, engine: cfg.Engine, log: cfg.Logger, base: context.WithoutCancel(ctx)}
	m := &Manager{core: c, runs: newRegistry(), member: &member{core: c}, idle: make(chan struct{}), kept: make(chan struct{})}
	m.admission = newAdmission(c, m.member, m.runs)
	keeping, quit := context.WithCancel(c.base)
	m.quit = quit
	m.reader = &reader{core: c, runs: m.runs, quit: keeping.Done()}
	m.worker = &worker{core: c, member: m.member, runs: m.runs, admission: m.admission, reader: m.reader}
	m.admission.begin = m.worker.execute
	m.notifier = newNotifier(c, m.member, m.runs)
	m.scheduler = newScheduler(c, m.admission, m.worker)
	m.worker.schedules = m.scheduler

	m.member.lost = func() { m.abortAll(engine.ErrFenced) }
	if err := m.member.join(ctx); err != nil {
		return nil, fmt.Errorf("background: joining the engine: %w", err)
	}
	if err := m.takeOver(ctx); err != nil {
		return nil, fmt.Errorf("background: taking over the runs of an earlier process: %w", err)
	}
	events := m.engine.Watch(keeping, "")
	m.admission.claim()

	go m.keep(keeping, events)
	m.notifier.start(keeping)
	m.scheduler.start(keeping)
	return m, nil
}

// keep renews the lease, follows events of the engine, stores ends that could not
// be stored, and removes old records, until ctx is done.
func (m *Manager) keep(ctx context.Context, events <-chan engine.Event) {
	defer close(m.kept)
	heartbeat := time.NewTicker(HeartbeatEvery)
	defer heartbeat.Stop()
	prune := time.NewTicker(pruneEvery)
	defer prune.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-m.idle:
		case e, ok := <-events:
			if ok {
				m.follow(ctx, e)
			} else {
				events = nil // ctx is done
			}
		case <-heartbeat.C:
			m.heartbeat(ctx)
		case <-prune.C:
			m.prune(ctx)
		}
	}
}

// follow does what an event of the engine asks for.
func (m *Manager) follow(ctx context.Context, e engine.Event) {
	switch e.Kind {
	case engine.EventQueued:
		if m.runs.get(e.Run.ID) == nil { // else this worker has claimed it
			m.admission.expect(true)
		}
	case engine.EventEnded:
		m.admission.expect(true) // it gave its permits back
		if e.Run.Notice == engine.NoticePending {
			m.notifier.look()
		}
	case engine.EventStopping:
		if t := m.runs.get(e.Run.ID); t != nil {
			t.hintStop(m.cfg.Grace)
		}
	case engine.EventScheduled:
		m.scheduler.look()
	case engine.EventMissed:
		m.scheduler.look()
		m.heartbeat(ctx)
	}
}

// heartbeat renews the lease with what all runs say of themselves, and does what
// the engine answers.
func (m *Manager) heartbeat(ctx context.Context) {
	held := make(map[string]engine.Beat)
	for _, t := range m.runs.all() {
		m.worker.retry(ctx, t)
		if t.live.Load() {
			held[t.run.ID] = t.sink.Beat()
		}
	}
	seen := m.admission.hinted()
	news, err := m.member.renew(ctx, held)
	if err != nil {
		return
	}

	for _, id := range news.Stops {
		if t := m.runs.get(id); t != nil {
			t.hintStop(m.cfg.Grace)
		}
	}
	for _, id := range news.Strays {
		m.takeStray(ctx, id)
	}
	if news.Orphans {
		if err := m.takeOver(ctx); err != nil && ctx.Err() == nil {
			m.log.Warn("runs of a dead worker not taken over; trying again", "error", err)
		}
	}
	if news.Notices {
		m.notifier.look()
	}
	m.admission.renewed(news.Queued, seen)
}

// takeOver takes over the runs of dead workers.
func (m *Manager) takeOver(ctx context.Context) error {
	const batch = 100
	for {
		runs, err := m.member.worker().Orphans(ctx, batch)
		if err != nil {
			return err
		}
		for _, run := range runs {
			m.worker.recover(ctx, run)
		}
		if len(runs) < batch {
			return nil
		}
	}
}

// takeStray takes up a run that the engine says is this worker's, and that
// nobody works on: the answer to its start was lost, or taking it over failed.
func (m *Manager) takeStray(ctx context.Context, id string) {
	if m.runs.get(id) != nil {
		return // it has just begun
	}
	run, err := m.engine.Get(ctx, id)
	if err == nil && run.Status == engine.StatusRunning && m.runs.get(id) == nil {
		m.worker.recover(ctx, run)
	}
}

// abortAll ends all work at once.
func (m *Manager) abortAll(cause error) {
	for _, t := range m.runs.all() {
		if t.live.Load() {
			t.abort(cause)
		}
	}
}

// prune removes the records that are not kept any longer.
func (m *Manager) prune(ctx context.Context) {
	now := time.Now()
	_, err := m.engine.Prune(ctx, engine.Retention{Before: now.Add(-m.cfg.Retention), Keep: m.cfg.RetainRuns, Notices: now.Add(-m.cfg.NoticeTTL)})
	if err != nil && ctx.Err() == nil {
		m.log.Warn("background records not pruned", "error", err)
	}
}
