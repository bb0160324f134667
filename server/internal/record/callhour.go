package record

import (
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// callHour holds the calls of about the last hour, by the minute in which they ended. The
// zero value is empty.
type callHour struct {
	minutes []callMinute // oldest first, at most maxMinutes; minutes without a call are left out
	took    histogram    // durations of the last minute
}

// callMinute sums up the calls of a minute.
type callMinute struct {
	minute        int64 // minutes since 1970
	calls, failed int64
	fuel          int64
	cpu           time.Duration
	memory        int64 // peak memory of one call, in bytes
	p50, p95      time.Duration
}

// minuteOf returns the minute of a time.
func minuteOf(at time.Time) int64 { return at.Unix() / 60 }

// add counts a call that has ended.
func (h *callHour) add(c *calledTool) {
	m := h.current(minuteOf(c.at.Add(c.took)))
	m.calls++
	if c.outcome != abi.Success {
		m.failed++
	}
	m.fuel += c.usage.Fuel
	m.cpu += c.usage.CPU
	m.memory = max(m.memory, c.usage.MemoryPeak)
	h.took.add(c.took)
}

// settle sets the durations of the last minute.
func (h *callHour) settle() {
	if n := len(h.minutes); n > 0 {
		h.minutes[n-1].p50, h.minutes[n-1].p95 = h.took.quantile(0.5), h.took.quantile(0.95)
	}
}

// current returns the minute that has begun. If the clock was set back a little, it is
// the last minute; if by more than one hour, it starts over.
func (h *callHour) current(minute int64) *callMinute {
	last := len(h.minutes) - 1
	if last >= 0 && h.minutes[last].minute-minute >= maxMinutes {
		h.minutes, last = nil, -1
	}
	if last >= 0 && h.minutes[last].minute >= minute {
		return &h.minutes[last]
	}

	h.settle()
	if len(h.minutes) == maxMinutes {
		h.minutes = append(h.minutes[:0], h.minutes[1:]...)
	}
	h.minutes = append(h.minutes, callMinute{minute: minute})
	h.took = histogram{}
	return &h.minutes[len(h.minutes)-1]
}

// at returns the minute that begins at a time, or nil if no call ended in it. Call settle
// first.
func (h *callHour) at(begin time.Time) *callMinute {
	for i := len(h.minutes) - 1; i >= 0; i-- {
		if h.minutes[i].minute == minuteOf(begin) {
			return &h.minutes[i]
		}
	}
	return nil
}

// count writes the totals of a minute's calls to out.
func (m *callMinute) count(out *wire.Minute) {
	out.Calls, out.CallErrors, out.CallP50Seconds, out.CallP95Seconds = m.calls, m.failed, shape.Micros(m.p50), shape.Micros(m.p95)
}
