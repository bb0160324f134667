package host

import (
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/fuel"
)

// meter counts what a call uses: fuel, and the memory on Go's heap that its guest
// makes the host take.
type meter struct {
	fuel    *fuel.Meter
	payer   instance.Payer
	counter api.MutableGlobal // of the instance; nil before there is one and after
	memory  *instance.Memory  // likewise
	live    *live             // nil if nobody follows what the call uses
	entry   *instance.Entry   // the function that runs; nil before and after

	earlier  int64 // units that were used before the call was continued
	stack    int64 // bytes of its stack that it pays for
	kept     int64 // bytes of arguments and results
	buffers  int64 // bytes of them that are paid for
	response int64 // bytes of a response that are paid for
}

const (
	// bytesPerUnit is how many bytes the host copies for a unit of fuel, as many as
	// the guest's own memory.copy.
	bytesPerUnit = 64
	// keptFree is how many bytes a call may keep before they are paid for.
	keptFree = 4 << 10
)

// charge makes the guest pay for n bytes that the host handles for it, and ends
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

// refill returns the counter of a guest that has used up its slice of fuel.
func (m *meter) refill(counter int64) int64 {
	counter, err := m.fuel.Refill(counter)
	m.note(counter)
	if err != nil {
		panic(&instance.Stop{Reason: m.exhausted(err)})
	}
	return counter
}

// resume continues from a snapshot. Each call pays for what led to it.
func (m *meter) resume(s *instance.Snapshot) error {
	left, err := m.fuel.Charge(0, s.Fuel)
	m.counter.Set(uint64(left))
	if err != nil {
		return &instance.Stop{Reason: m.exhausted(err)}
	}
	return nil
}

// even starts a new slice where a module has started up, so that calls that started it
// up and those that resumed have the same one, and ends a call that overdrew.
func (m *meter) even() error {
	left, err := m.fuel.Refill(m.left())
	m.counter.Set(uint64(left))
	m.note(left)
	if err != nil {
		return &instance.Stop{Reason: m.exhausted(err)}
	}
	return nil
}

// finish ends a call that used more than its budget since its last check.
func (m *meter) finish() error {
	if err := m.fuel.Finish(m.left()); err != nil {
		return &instance.Stop{Reason: m.exhausted(err)}
	}
	return nil
}

func (m *meter) left() int64 { return int64(m.counter.Get()) }

// exhausted says how much there was of the fuel that is used up.
func (m *meter) exhausted(err error) error {
	if errors.Is(err, fuel.ErrExhausted) {
		return fmt.Errorf("%w after %d units", ErrFuel, m.fuel.Budget())
	}
	return err
}

// payStack pays for what the stacks of the guest have grown by.
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

// keep pays for n bytes of arguments or results that stay on Go's heap until the
// call ends.
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

// hold pays for a response of n bytes, in place of the one before.
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

// repay gives back what was paid for.
func (m *meter) repay() {
	if m.stack > 0 {
		m.payer.Give(instance.Stacks, uint64(m.stack))
	}
	if m.buffers+m.response > 0 {
		m.payer.Give(instance.Buffers, uint64(m.buffers+m.response))
	}
	m.stack, m.buffers, m.response = 0, 0, 0
}
