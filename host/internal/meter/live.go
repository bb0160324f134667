package meter

import "sync/atomic"

// Live is the usage of a running call, which other goroutines may read.
type Live struct {
	Fuel, Peak, Waited atomic.Int64
}

// Note records the usage of the call; left is the value of the fuel counter.
func (m *Meter) Note(left int64) {
	if m.Live != nil {
		m.Live.Fuel.Store(max(0, m.Fuel.Used(left)-m.Earlier))
		m.Live.Peak.Store(int64(m.Memory.Peak))
	}
}
