package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/record"
)

// HeldFor is the reason that the record of a run gives for holding it, if the run waits for
// approval.
const HeldFor = "approval"

// MaxWaiting is the maximum number of calls of a session that wait for approval at the same
// time.
const MaxWaiting = 100

// Runs gives access to the held runs. A *background.Manager implements it.
type Runs interface {
	Get(ctx context.Context, session, id string) (engine.Run, error)
	Payload(ctx context.Context, session, id string, part engine.Part) (json.RawMessage, error)
	Watch(ctx context.Context, session string) <-chan engine.Event
	Release(ctx context.Context, id string) (engine.Run, error)
	Refuse(ctx context.Context, id, by, reason string) (engine.Run, error)
	Stop(ctx context.Context, session, id string, req background.StopRequest) (engine.Run, error)
	Remove(ctx context.Context, session, id string) error
}

// Config configures a Manager. All fields are required.
type Config struct {
	*Checker
	Runs      Runs
	Policy    func() Policy                                                        // policy in force
	Lacks     func(ctx context.Context, session string, tool *catalog.Tool) string // describes what else a held call lacks, for its user; empty if nothing
	Processes func(ctx context.Context) (map[string]bool, error)                   // processes of the live hosts
	Serving   context.Context                                                      // done once nobody is to be asked any more
	Log       *slog.Logger
}

// A Manager holds calls as runs until a person decides on them. It is safe for concurrent
// use.
type Manager struct {
	Config
	holding sync.Mutex // held while a call is being held
}

// New returns a Manager.
func New(cfg Config) *Manager { return &Manager{Config: cfg} }

// Hold holds a call: it calls spawn, which stores the call as a run with the given binding. If
// the run was stored before, nobody is asked about it again.
func (m *Manager) Hold(ctx context.Context, session, tool string, secret bool, spawn func(Binding) (background.SpawnResult, error)) (engine.Run, error) {
	m.holding.Lock() // so that the count of held calls stays right
	defer m.holding.Unlock()
	bound, err := m.Bind(ctx, session, tool, secret)
	if err != nil {
		return engine.Run{}, err
	}

	r, err := spawn(bound)
	if err == nil && !r.Reused {
		m.NotifyHeld(r.Run)
	}
	return r.Run, err
}

// NotifyHeld notifies operators that a run waits for approval.
func (m *Manager) NotifyHeld(run engine.Run) {
	m.Audit.Decided(audit.Asked, recordOf(run), "", "")
	m.Log.Warn("a call waits for approval: toolhost approve shows it", "task_id", run.ID, "tool", run.Tool, "session", run.Session)
}

// Bind returns the binding for one more held run of a session, unless [MaxWaiting] calls of
// the session already wait. If the arguments contain a secret, the run is bound to this
// process.
func (m *Manager) Bind(ctx context.Context, session, tool string, secret bool) (Binding, error) {
	waiting, err := m.Waiting(ctx, session)
	if err != nil {
		return Binding{}, err
	}
	if len(waiting) >= MaxWaiting {
		return Binding{}, reason.Refuse("%d calls of this session wait for approval already: wait until somebody has decided on them", len(waiting))
	}

	found, err := m.Lookup(tool)
	if err != nil {
		return Binding{}, err
	}
	b, err := Bind(found)
	if secret {
		b.Process = m.Process
	}
	return b, err
}

// Waiting returns the runs of a session, or of all sessions, that wait for approval, newest
// first.
func (m *Manager) Waiting(ctx context.Context, session string) ([]engine.Run, error) {
	active, err := m.Engine.List(ctx, engine.Query{Session: session, Active: true})
	return slices.DeleteFunc(active, func(r engine.Run) bool { return r.Held != HeldFor || !r.Undecided() }), err
}

// WaitingIn returns those runs, among a run and its descendants, that wait for approval,
// oldest first.
func (m *Manager) WaitingIn(ctx context.Context, session, id string) ([]engine.Run, error) {
	waiting, err := m.Waiting(ctx, session)
	if err != nil {
		return nil, err
	}
	slices.Reverse(waiting)
	return slices.DeleteFunc(waiting, func(r engine.Run) bool { return !m.isIn(ctx, r, id) }), nil
}

// isIn reports whether a run is the one with the id, or a descendant of it.
func (m *Manager) isIn(ctx context.Context, r engine.Run, id string) bool {
	for r.ID != id && r.Parent != "" {
		parent, err := m.Engine.Get(ctx, r.Parent)
		if err != nil {
			return false
		}
		r = parent
	}
	return r.ID == id
}

// undecided returns a run whose held call nobody has decided on.
func (m *Manager) undecided(ctx context.Context, id string) (engine.Run, error) {
	run, err := m.Engine.Get(ctx, id)
	if err == nil && (run.Held != HeldFor || !run.Undecided()) {
		err = notHeld(id)
	}
	return run, err
}

func notHeld(id string) error {
	return conflict(fmt.Errorf("no call with the id %s waits for approval: it was decided on, stopped, or never waited", id))
}

// whileHeld returns a context that ends once somebody has decided on a run, or the service
// closes.
func (m *Manager) whileHeld(ctx context.Context, run engine.Run) (asking context.Context, stop func()) {
	asking, cancel := context.WithCancelCause(ctx)
	events := m.Engine.Watch(asking, run.Session)
	look := func() {
		if now, err := m.Engine.Get(asking, run.ID); errors.Is(err, engine.ErrNotFound) || err == nil && !now.Undecided() {
			cancel(errDecided)
		}
	}

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		look() // it may have been decided before the first event
		for e := range events {
			if e.Kind == engine.EventMissed || e.Run != nil && e.Run.ID == run.ID {
				look()
			}
		}
	}()
	closing := context.AfterFunc(m.Serving, func() { cancel(reason.ErrShutdown) })
	return asking, func() {
		closing()
		cancel(nil)
		<-ended
	}
}

// Expire refuses, until ctx is done, the calls that have waited too long or whose arguments
// are lost.
func (m *Manager) Expire(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()

	for {
		waiting, err := m.Waiting(ctx, "")
		if err == nil {
			err = m.dropTickets(ctx, waiting)
		}
		if err != nil && ctx.Err() == nil {
			m.Log.Warn("calls that wait for approval not checked", "error", err)
		}
		for _, r := range waiting {
			wait := m.Policy().wait()
			if time.Since(r.CreatedAt) < wait {
				continue
			}
			if _, err := m.refuse(ctx, r, "host", fmt.Sprintf("nobody has decided in %v", wait)); err != nil {
				m.Log.Warn("a call that waited too long for approval was not ended", "task_id", r.ID, "error", err)
			}
		}

		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// callerOf returns the tool that made the call of a held run; empty if an agent or an
// operator made it.
func callerOf(run engine.Run) string {
	if run.Origin == engine.OriginParked {
		return run.By
	}
	return ""
}

// recordOf describes a held run for the audit log.
func recordOf(run engine.Run) record.Held {
	return record.Held{Session: run.Session, Tool: run.Tool, Run: run.ID}
}
