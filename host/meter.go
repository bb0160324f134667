package host

import (
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/fuel"
)

// meter counts what a call uses: fuel, and the host's heap memory on the guest's
// behalf.
type meter struct {
	fuel    *fuel.Meter
	payer   instance.Payer
	counter api.MutableGlobal // fuel counter of the instance; nil before and after
	memory  *instance.Memory  // likewise
	live    *live             // nil if nobody follows the usage
	entry   *instance.Entry   // the function that is running; nil before and after

	earlier  int64 // units used before the call was continued
	stack    int64 // bytes of stack that it pays for
	kept     int64 // bytes of arguments and results
	buffers  int64 // bytes of these that are paid for
	response int64 // bytes of the response that are paid for
}

const (
	// bytesPerUnit is how many bytes the host copies for a unit of fuel, the same
	// as the guest's own memory.copy.
	bytesPerUnit = 64
	// keptFree is how many bytes a call may keep free of charge.
	keptFree = 4 << 10
)

// charge charges the guest for n bytes that the host handles for it. It ends
// the call if it has to end.
func (m *meter) charge(n int) {
	if n >= bytesPerUnit {
		m.pay(int64(n / bytesPerUnit))
	}
}

// check ends the call if it has to end.
func (m *meter) check() { m.pay(0) }

func (m *meter) pay(units int64) {
	left, err := m.fuel.Charge(int64(m.counter.Get()), units)
	m.counter.Set(uint64(left))
	m.note(left)
	if err != nil {
		panic(&instance.Stop{Reason: m.exhausted(err)})
	}
}

// refill returns the new counter of a guest that has used up its slice of fuel.
func (m *meter) refill(counter int64) int64 {
	counter, err := m.fuel.Refill(counter)
	m.note(counter)
	if err != nil {
		panic(&instance.Stop{Reason: m.exhausted(err)})
	}
	return counter
}

// resume continues from a snapshot. Each call pays for the start-up that led to it.
func (m *meter) resume(s *instance.Snapshot) error {
	left, err := m.fuel.Charge(0, s.Fuel)
	m.counter.Set(uint64(left))
	if err != nil {
		return &instance.Stop{Reason: m.exhausted(err)}
	}
	return nil
}

// even starts a new slice after start-up, so that calls that started the module up and
// calls that resumed a snapshot have the same one. It ends a call that overdrew its
// fuel.
func (m *meter) even() error {
	left, err := m.fuel.Refill(m.left())
	m.counter.Set(uint64(left))
	m.note(left)
	if err != nil {
		return &instance.Stop{Reason: m.exhausted(err)}
	}
	return nil
}

// finish ends a call that exceeded its budget after its last check.
func (m *meter) finish() error {
	if err := m.fuel.Finish(m.left()); err != nil {
		return &instance.Stop{Reason: m.exhausted(err)}
	}
	return nil
}

func (m *meter) left() int64 { return int64(m.counter.Get()) }

// exhausted adds the size of the exhausted budget to an error.
func (m *meter) exhausted(err error) error {
	if errors.Is(err, fuel.ErrExhausted) {
		return fmt.Errorf("%w after %d units", ErrFuel, m.fuel.Budget())
	}
	return err
}

// payStack charges for the growth of the guest's stacks.
func (m *meter) payStack(in *instance.Instance) error {
	if m.entry == nil {
		return nil
	}

	n := in.Unpaid(m.entry)
	if n <= max(m.stack, instance.StackFree) {
		return nil
	}
	if err := m.payer.Take(instance.Stacks, uint64(n-m.stack)); err != nil {
		return err
	}
	m.stack = n
	return nil
}

// keep charges for n bytes of arguments or results that stay on the heap until
// the call ends.
func (m *meter) keep(n int) error {
	m.kept += int64(n)
	more := m.kept - m.buffers
	if more <= keptFree {
		return nil
	}
	if err := m.payer.Take(instance.Buffers, uint64(more)); err != nil {
		return err
	}
	m.buffers = m.kept
	return nil
}

// hold charges for a response of n bytes, which replaces the one before.
func (m *meter) hold(n int) (err error) {
	switch more := int64(n) - m.response; {
	case more > 0:
		err = m.payer.Take(instance.Buffers, uint64(more))
	case more < 0:
		m.payer.Give(instance.Buffers, uint64(-more))
	}
	if err == nil {
		m.response = int64(n)
	}
	return err
}

// repay releases the memory that was charged.
func (m *meter) repay() {
	if m.stack > 0 {
		m.payer.Give(instance.Stacks, uint64(m.stack))
	}
	if m.buffers+m.response > 0 {
		m.payer.Give(instance.Buffers, uint64(m.buffers+m.response))
	}
	m.stack, m.buffers, m.response = 0, 0, 0
}
