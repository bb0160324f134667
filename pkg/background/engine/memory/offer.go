package memory

import (
	"context"
	"maps"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// Offers are the current and past offers of a worker.
type offers struct {
	now      engine.Offer
	before   map[toolVersion]time.Time // times at which it withdrew the versions that it no longer offers
	patience time.Duration
}

type toolVersion struct{ tool, version string }

// Offer implements [engine.Worker].
func (w *worker) Offer(_ context.Context, o engine.Offer) error {
	e, err := w.lock()
	defer e.mu.Unlock()
	if err != nil {
		return err
	}

	if w.before == nil {
		w.before = map[toolVersion]time.Time{}
	}
	for tool, version := range w.now.Tools {
		w.before[toolVersion{tool, version}] = time.Now()
	}
	for tool, version := range o.Tools {
		delete(w.before, toolVersion{tool, version})
	}
	maps.DeleteFunc(w.before, func(_ toolVersion, until time.Time) bool { return time.Since(until) > w.patience })
	w.now = o
	return nil
}

// takes reports whether w may claim a run: one that it offers, or one that has waited in vain
// for a worker that does.
func (w *worker) takes(run engine.Run) bool {
	if w.now.Takes(run) {
		return true
	}
	since := time.Now().Add(-w.patience)
	if run.CreatedAt.After(since) {
		return false
	}
	for _, other := range w.engine.workers {
		if other.offered(run, since) {
			return false
		}
	}
	return true
}

// offered reports whether w, while its lease was valid, offered a run at the time since or
// later.
func (w *worker) offered(run engine.Run, since time.Time) bool {
	if w.now.Tools != nil && w.now.Takes(run) && (w.live() || w.ended().After(since)) {
		return true
	}
	for before, until := range w.before {
		offer := engine.Offer{Tools: map[string]string{before.tool: before.version}}
		if offer.Takes(run) && until.After(since) {
			return true
		}
	}
	return false
}

// ended returns the time at which the lease of a worker that is not live ended.
func (w *worker) ended() time.Time {
	if w.left {
		return w.renewed
	}
	return w.renewed.Add(w.ttl)
}

// remembered reports whether the past offers of a dead worker still matter to runs
// that wait for it.
func (w *worker) remembered() bool { return time.Since(w.ended()) <= w.patience }

// Workers implements [engine.Engine].
func (e *Engine) Workers(context.Context) ([]engine.WorkerState, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	var states []engine.WorkerState
	for _, w := range e.workers {
		if w.left {
			continue
		}
		state := engine.WorkerState{ID: w.id, Offer: w.now, Since: w.since, RenewedAt: w.renewed, TTL: w.ttl, Live: w.live()}
		for _, r := range e.active {
			switch {
			case r.holder != w:
			case r.run.Status == engine.StatusQueued:
				state.Claimed++
			case r.run.Status == engine.StatusRunning:
				state.Running++
			}
		}
		states = append(states, state)
	}
	return states, nil
}
