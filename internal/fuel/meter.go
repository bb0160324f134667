package fuel

import "errors"

const (
	// MaxBudget is the maximum budget of a call, in units.
	MaxBudget = 1 << 62
	// Slice is how much fuel a guest gets at a time: about 50 microseconds of
	// computing. That is short enough to stop soon, and long enough that a refill
	// costs nothing noticeable.
	Slice = 100_000
)

// ErrExhausted means that the call has used up its budget.
var ErrExhausted = errors.New("out of fuel")

// A Meter counts the fuel of one call. The guest's counter is what is left of the granted
// slices, so the fuel used is always exactly what was granted minus what is left.
//
// A Meter belongs to the goroutine that runs the call. Other goroutines may change
// only what the interrupt function reads.
type Meter struct {
	budget    int64
	granted   int64
	interrupt func() error
	err       error // why the call was ended, by Refill or Charge
	used      int64 // fuel used by then
}

// NewMeter returns the meter of a call with that budget in units, which is clamped to 0 …
// [MaxBudget]. Every refill and charge calls the interrupt function, which says whether the
// call has to end for another reason, such as a stop, a deadline or a shutdown. It must be
// fast. Nil never interrupts.
func NewMeter(budget int64, interrupt func() error) *Meter {
	return &Meter{budget: min(max(budget, 0), MaxBudget), interrupt: interrupt}
}

// Refill implements the imported refill function: left is the current value of the counter, and
// the result is its new value. On an error, the host must panic to end the call. The error is
// [ErrExhausted] or the unchanged error of the interrupt function.
//
// The error is ErrExhausted if and only if the call needs more than its budget. The last slice
// is exactly the rest of the budget.
func (m *Meter) Refill(left int64) (int64, error) {
	if m.interrupt != nil {
		if err := m.interrupt(); err != nil {
			return left, m.end(left, err)
		}
	}
	return m.grant(left)
}

// grant brings the counter to a full slice or to what the budget has left.
func (m *Meter) grant(left int64) (int64, error) {
	if left < Slice {
		n := min(Slice-left, m.budget-m.granted)
		m.granted += n
		left += n
	}
	if left < 0 {
		return left, m.end(left, ErrExhausted)
	}
	return left, nil
}

// end remembers why and where the account was closed.
func (m *Meter) end(left int64, err error) error {
	if m.err == nil {
		m.used, m.err = m.count(left), err
	}
	return err
}

// count returns the fuel used when the counter stands at left.
func (m *Meter) count(left int64) int64 {
	return max(0, min(m.granted-left, m.budget))
}

// Charge takes n units off the counter for the work of a host function: left is the current
// value of the counter, and the result is its new value. A negative n counts as 0. The errors
// are the same as those of [Meter.Refill].
func (m *Meter) Charge(left, n int64) (int64, error) {
	if m.interrupt != nil {
		if err := m.interrupt(); err != nil {
			return left, m.end(left, err)
		}
	}

	n = max(n, 0)
	if n > left+m.budget-m.granted {
		left, m.granted = -1, m.budget
		return left, m.end(left, ErrExhausted)
	}
	if left -= n; left >= 0 {
		return left, nil
	}

	return m.grant(left)
}

// Finish settles the fuel of a call whose guest has returned, where left is the final value of
// the counter. The error is [ErrExhausted] if the guest has used more than its budget since its
// last check.
func (m *Meter) Finish(left int64) error {
	if m.err == nil && m.granted-left > m.budget {
		return m.end(left, ErrExhausted)
	}
	return m.err
}

// Used returns the fuel that the call has used, which is at most its budget. left is the
// current value of the counter. After an error of Refill, Charge or Finish, Used returns the
// fuel used up to that error, and ignores left.
func (m *Meter) Used(left int64) int64 {
	if m.err != nil {
		return m.used
	}
	return m.count(left)
}

// Budget returns the budget of the call in units.
func (m *Meter) Budget() int64 { return m.budget }
