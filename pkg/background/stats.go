package background

import (
	"maps"
	"sync"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// Stats are counts of the current and past activity of a Manager.
type Stats struct {
	Active    int `json:"active"`    // runs that hold a slot of this process, including parked calls
	PerHost   int `json:"per_host"`  // number of slots: see [Config]
	Parked    int `json:"parked"`    // parked calls among Active
	Queued    int `json:"queued"`    // runs of all workers that wait in the queue
	Waiting   int `json:"waiting"`   // suspended runs of all workers, without a slot
	Unstored  int `json:"unstored"`  // runs whose end is not stored yet
	Unnoticed int `json:"unnoticed"` // notices that wait for Config.OnNotice

	RecordBytes int64 `json:"record_bytes"` // bytes of the records of runs and schedules
	RecordQuota int64 `json:"record_quota"` // limit of RecordBytes: see [Config]

	Spawned   int64                      `json:"spawned"`      // new runs that were stored
	Succeeded int64                      `json:"succeeded"`    // runs that succeeded
	Failed    map[engine.ErrorKind]int64 `json:"failed"`       // runs that failed, by kind of error
	Canceled  int64                      `json:"canceled"`     // runs that were canceled
	Refused   int64                      `json:"refused"`      // spawns, parked calls and schedules refused by a limit
	Notices   int64                      `json:"notices"`      // notices passed to Config.OnNotice
	Rerun     int64                      `json:"rerun"`        // runs started again after an interruption
	Output    int64                      `json:"output_bytes"` // bytes of output of ended runs, kept or not
}

// counters are the counts since a Manager was made.
type counters struct {
	mu    sync.Mutex
	stats Stats
	onEnd func(engine.Run) // may be nil
}

// add changes the counts.
func (c *counters) add(change func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.stats)
}

// Stats returns the current counts.
func (m *Manager) Stats() Stats {
	m.counters.mu.Lock()
	s := m.counters.stats
	s.Failed = maps.Clone(s.Failed)
	m.counters.mu.Unlock()

	s.Active, s.PerHost = m.admission.active(), m.cfg().PerHost
	s.Unnoticed = m.notifier.waiting()
	s.RecordBytes, s.RecordQuota = m.engine.Recorded(), m.cfg().RecordQuota

	claimed := 0 // queued runs of this worker
	for _, t := range m.runs.all() {
		if !t.ended() && !t.call && !t.live.Load() {
			claimed++
		}
		switch {
		case t.unstored():
			s.Unstored++
		case t.ended():
		case t.live.Load() && t.run.Origin == engine.OriginParked:
			s.Parked++
		}
	}
	counts := m.engine.Counts()
	s.Queued, s.Waiting = max(0, counts[engine.StatusQueued]-claimed), counts[engine.StatusWaiting]
	return s
}

// ended counts the end of a run, and calls onEnd.
func (c *counters) ended(run engine.Run) {
	c.add(func(s *Stats) { s.ended(run) })
	if c.onEnd != nil {
		c.onEnd(run)
	}
}

// ended counts the end of a run.
func (s *Stats) ended(run engine.Run) {
	s.Output += run.OutputBytes
	switch {
	case run.Status == engine.StatusSucceeded:
		s.Succeeded++
	case run.Status == engine.StatusCanceled:
		s.Canceled++
	case run.Error != nil:
		s.Failed[run.Error.Kind]++
	}
}
