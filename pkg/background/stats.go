package background

import "maps"

// Stats are counts of what a [Manager] does, and did since it was made.
type Stats struct {
	Active    int `json:"active"`    // runs that hold a place of the host's, parked ones counted
	PerHost   int `json:"per_host"`  // places there are: see [Config]
	Parked    int `json:"parked"`    // parked calls among them
	Queued    int `json:"queued"`    // runs that wait for a place
	Unstored  int `json:"unstored"`  // runs whose end is not stored yet
	Unnoticed int `json:"unnoticed"` // notices that wait for Config.OnNotice

	RecordBytes int64 `json:"record_bytes"` // what records of runs and schedules take
	RecordQuota int64 `json:"record_quota"` // what they may take: see [Config]

	Spawned   int64               `json:"spawned"`      // runs that came in, by whatever door
	Succeeded int64               `json:"succeeded"`    // runs that ended so
	Failed    map[ErrorKind]int64 `json:"failed"`       // runs that ended so, by why
	Canceled  int64               `json:"canceled"`     // runs that ended so
	Refused   int64               `json:"refused"`      // spawns, parked calls and schedules there was no place or no room for
	Notices   int64               `json:"notices"`      // notices handed to Config.OnNotice
	Rerun     int64               `json:"rerun"`        // runs that were queued again after their host went down
	Output    int64               `json:"output_bytes"` // bytes of output of ended runs, kept or not
}

// Stats returns the counts of this moment.
func (m *Manager) Stats() Stats {
	active, parked, queued := m.limits.counts()
	recorded := m.engine.Recorded()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.Failed = maps.Clone(s.Failed)
	s.Active, s.Parked, s.Queued, s.PerHost = active, parked, queued, m.cfg.PerHost
	s.RecordBytes, s.RecordQuota = recorded, m.cfg.RecordQuota
	s.Unnoticed = m.notices.waiting()
	for _, t := range m.tasks {
		if t.unstored() {
			s.Unstored++
		}
	}
	return s
}

// count changes the counts.
func (m *Manager) count(change func(*Stats)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.stats)
}

// ended counts the end of a run.
func (s *Stats) ended(run Run) {
	s.Output += run.OutputBytes
	switch {
	case run.Status == StatusSucceeded:
		s.Succeeded++
	case run.Status == StatusCanceled:
		s.Canceled++
	case run.Error != nil:
		s.Failed[run.Error.Kind]++
	}
}
