package record

import (
	"context"
	"time"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	sampleEvery = 10 * time.Second
	maxMinutes  = 61 // an hour, and the current minute
)

// history is what happened in the last hour, by minute, except for calls.
type history struct {
	minutes []wire.Minute
	last    sample // last sample counted
}

// sample holds the counters at a moment.
type sample struct {
	at   time.Time
	runs background.Stats
	host host.Stats
}

// Follow updates the history until ctx is done. One of its samples is taken at the start of
// each minute, so that the changes between two samples belong to one minute.
func (f *Figures) Follow(ctx context.Context) {
	for {
		now := time.Now()
		next := time.NewTimer(now.Truncate(sampleEvery).Add(sampleEvery).Sub(now))
		select {
		case <-next.C:
			f.Sample()
		case <-ctx.Done():
			next.Stop()
			return
		}
	}
}

// Sample adds what has changed since the last sample to the history.
func (f *Figures) Sample() {
	f.sampling.Lock() // samples are added in the order of their times
	defer f.sampling.Unlock()
	runs, calls := f.stats()

	f.mu.Lock()
	defer f.mu.Unlock()
	f.past.add(sample{time.Now(), runs, calls})
}

// History returns the statistics of the last hour, by minute, oldest first.
func (f *Figures) History() []wire.Minute {
	f.Sample()
	f.mu.Lock()
	defer f.mu.Unlock()

	f.all.settle()
	minutes := append([]wire.Minute{}, f.past.minutes...)
	for i := range minutes {
		if c := f.all.at(minutes[i].At); c != nil {
			c.count(&minutes[i])
		}
	}
	return minutes
}

// HistoryOf returns the statistics of a tool's direct calls in the last hour, by minute,
// oldest first. Fuel is the fuel of these calls, MemoryPeak is the peak of a single call,
// and fields about runs are zero. It is empty for a tool without such calls.
func (f *Figures) HistoryOf(tool string) []wire.Minute {
	f.mu.Lock()
	defer f.mu.Unlock()

	minutes := []wire.Minute{}
	t := f.tools[tool]
	if t == nil {
		return minutes
	}
	t.hour.settle()
	now := time.Now().UTC().Truncate(time.Minute)
	for ago := maxMinutes - 1; ago >= 0; ago-- {
		m := wire.Minute{At: now.Add(-time.Duration(ago) * time.Minute)}
		c := t.hour.at(m.At)
		if c == nil && len(minutes) == 0 {
			continue
		}
		if c != nil {
			c.count(&m)
			m.Fuel, m.CPUSeconds, m.MemoryPeak = c.fuel, shape.Micros(c.cpu), c.memory
		}
		minutes = append(minutes, m)
	}
	return minutes
}

// add counts what happened between the last sample and s in the minute of the last sample,
// and records the current values in the minute of s.
func (h *history) add(s sample) {
	if h.last.at.IsZero() {
		h.last = s
	}
	m, from := h.minute(h.last.at), h.last
	m.RunsSpawned += s.runs.Spawned - from.runs.Spawned
	m.RunsSucceeded += s.runs.Succeeded - from.runs.Succeeded
	m.RunsFailed += failures(s.runs) - failures(from.runs)
	m.RunsCanceled += s.runs.Canceled - from.runs.Canceled
	m.Fuel += s.host.Fuel - from.host.Fuel
	m.CPUSeconds += (s.host.CPU - from.host.CPU).Seconds()
	if s.host.MemoryPeak > from.host.MemoryPeak { // reached in between
		m.MemoryPeak = max(m.MemoryPeak, s.host.MemoryPeak)
	}

	m = h.minute(s.at)
	m.RunsActive = max(m.RunsActive, s.runs.Active)
	m.RunsQueued = max(m.RunsQueued, s.runs.Queued)
	m.MemoryPeak = max(m.MemoryPeak, s.host.Memory)
	h.last = s
}

func failures(s background.Stats) (all int64) {
	for _, n := range s.Failed {
		all += n
	}
	return all
}

// minute returns the minute of a moment, or the latest if the clock was set back. Minutes
// in between, when the process did not run, are empty.
func (h *history) minute(at time.Time) *wire.Minute {
	begin := at.UTC().Truncate(time.Minute)
	if n := len(h.minutes); n > 0 && begin.Sub(h.minutes[n-1].At) >= maxMinutes*time.Minute {
		h.minutes = nil
	}
	for n := len(h.minutes); n == 0 || h.minutes[n-1].At.Before(begin); n = len(h.minutes) {
		next := begin
		if n > 0 {
			next = h.minutes[n-1].At.Add(time.Minute)
		}
		h.minutes = append(h.minutes, wire.Minute{At: next})
	}

	if more := len(h.minutes) - maxMinutes; more > 0 {
		h.minutes = append(h.minutes[:0], h.minutes[more:]...)
	}
	last := len(h.minutes) - 1
	if back := int(h.minutes[last].At.Sub(begin) / time.Minute); back > 0 && back <= last {
		last -= back
	}
	return &h.minutes[last]
}
