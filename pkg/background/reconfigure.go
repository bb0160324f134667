package background

import (
	"fmt"
	"sync"
)

// givenConfig is the configuration without defaults.
type givenConfig struct {
	mu  sync.Mutex
	cfg Config
}

// Reconfigured returns c, with to's values in the fields that [Manager.Reconfigure] may
// change.
func (c Config) Reconfigured(to Config) Config {
	c.PerSession, c.PerOwner, c.PerHost, c.Parked, c.Schedules = to.PerSession, to.PerOwner, to.PerHost, to.Parked, to.Schedules
	c.Attempts, c.OutputCap, c.Timeout, c.MaxTimeout = to.Attempts, to.OutputCap, to.Timeout, to.MaxTimeout
	c.Retention, c.RetainRuns, c.NoticeTTL, c.EndSession = to.Retention, to.RetainRuns, to.NoticeTTL, to.EndSession
	c.MinInterval, c.Misfire = to.MinInterval, to.Misfire
	return c
}

// Reconfigure changes the configuration from now on. It calls change with a copy of the
// configuration as it was given, without defaults; change may set PerSession, PerOwner,
// PerHost, Parked, Schedules, Attempts, OutputCap, Timeout, MaxTimeout, Retention,
// RetainRuns, NoticeTTL, EndSession, MinInterval and Misfire. Other fields are ignored.
//
// Spawned runs keep their deadline, their output cap and their slots, even if there are more
// of them than the new limits allow. A schedule that fires more often than MinInterval allows
// continues. If it returns an error, which matches [ErrInvalid], nothing has changed.
func (m *Manager) Reconfigure(change func(*Config)) error {
	m.given.mu.Lock()
	defer m.given.mu.Unlock()
	now := m.given.cfg
	wanted := now
	change(&wanted)
	now = now.Reconfigured(wanted)
	whole, err := now.withDefaults()
	if err != nil {
		return fmt.Errorf("background: %w", err)
	}

	m.given.cfg = now
	m.config.Store(&whole)
	m.admission.resized()
	return nil
}
