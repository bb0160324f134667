package background

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A member holds this process's lease on the engine. When the lease has ended,
// it joins again; the runs of the old lease are then lost.
type member struct {
	*core
	lost func() // called when the lease has ended; set before the first renewal

	offering sync.Mutex // held while the offer is changed

	mu     sync.Mutex
	lease  engine.Worker // the latest lease; its writes are refused once it has ended
	ended  bool          // lease has ended, and there is no new one yet
	until  time.Time     // end of the lease, by this process's clock
	expiry *time.Timer   // ends the lease at that time
	offer  engine.Offer  // the last offer sent to the engine
}

// worker returns the lease.
func (m *member) worker() engine.Worker {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lease
}

// join begins a new lease.
func (m *member) join(ctx context.Context) error {
	m.offering.Lock()
	defer m.offering.Unlock()
	offer, sent := m.cfg().offer(), time.Now()
	lease, err := m.engine.Join(ctx, engine.WorkerInfo{
		TTL:   m.cfg().LeaseTTL,
		Quota: engine.Quota{Max: m.cfg().RecordQuota, Each: m.cfg().OwnerQuota, Owner: m.cfg().Owner},
		Offer: offer, Patience: m.cfg().Patience,
	})
	if err != nil {
		return err
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	m.lease, m.ended, m.until, m.offer = lease, false, sent.Add(m.cfg().LeaseTTL), offer
	m.expiry = time.AfterFunc(time.Until(m.until), func() { m.end(lease) })
	return nil
}

// reoffer sends the engine the current offer, if it has changed.
func (m *member) reoffer(ctx context.Context) (changed bool, err error) {
	m.offering.Lock()
	defer m.offering.Unlock()
	m.mu.Lock()
	lease, before := m.lease, m.offer
	m.mu.Unlock()

	offer := m.cfg().offer()
	if sameOffer(before, offer) {
		return false, nil
	}
	if err := lease.Offer(ctx, offer); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.offer = offer
	return true, nil
}

func sameOffer(a, b engine.Offer) bool {
	return (a.Tools == nil) == (b.Tools == nil) && maps.Equal(a.Tools, b.Tools) && a.Places == b.Places && bytes.Equal(a.About, b.About)
}

// over reports whether a lease has ended, even if nobody has noticed yet, or has been
// replaced.
func (m *member) over(lease engine.Worker) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lease != lease || m.ended || !time.Now().Before(m.until)
}

// renew sends a heartbeat. If the lease has ended, it begins a new one.
func (m *member) renew(ctx context.Context, held map[string]engine.Beat) (engine.Renewal, error) {
	m.mu.Lock()
	lease, ended := m.lease, m.ended
	m.mu.Unlock()
	if ended {
		return engine.Renewal{}, m.rejoin(ctx, lease)
	}

	sent := time.Now()
	news, err := lease.Renew(ctx, held)

	switch {
	case err == nil:
		m.mu.Lock()
		m.until = sent.Add(m.cfg().LeaseTTL)
		m.expiry.Reset(time.Until(m.until))
		m.mu.Unlock()
	case errors.Is(err, engine.ErrFenced):
		m.end(lease)
		err = m.rejoin(ctx, lease)
	case ctx.Err() == nil:
		m.log.Warn("heartbeat not stored; trying again", "error", err)
	}
	return news, err
}

// rejoin replaces a lease that has ended. The next heartbeat renews the new
// one.
func (m *member) rejoin(ctx context.Context, old engine.Worker) error {
	err := old.Leave(ctx) // by the engine's clock it may last longer
	if err == nil || errors.Is(err, engine.ErrFenced) {
		err = m.join(ctx)
	}
	if err != nil {
		m.log.Warn("engine not joined again; trying again", "error", err)
		return err
	}
	m.log.Info("engine joined again")
	return engine.ErrFenced
}

// end marks a lease as ended.
func (m *member) end(lease engine.Worker) {
	m.mu.Lock()
	if m.lease != lease || m.ended {
		m.mu.Unlock()
		return
	}
	m.ended = true
	m.expiry.Stop()
	m.mu.Unlock()

	m.log.Error("the lease on the engine has ended: its runs are another worker's now")
	m.lost()
}

// leave gives up the lease.
func (m *member) leave(ctx context.Context) error {
	m.mu.Lock()
	m.expiry.Stop()
	lease := m.lease
	m.mu.Unlock()
	return lease.Leave(ctx)
}
