// Package meter counts the usage of one call: fuel, and memory of the host.
package meter

import (
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/fuel"
)

// ErrFuel means that a call used up its fuel.
var ErrFuel = errors.New("out of fuel")

// Meter counts the usage of a call: fuel, and the heap memory that the host uses on the
// guest's behalf.
type Meter struct {
	Fuel    *fuel.Meter
	Payer   instance.Payer
	Counter api.MutableGlobal // fuel counter of the instance; nil while the call has no instance
	Memory  *instance.Memory  // memory of the instance; nil while the call has no instance
	Live    *Live             // usage for other goroutines; nil if nobody follows it
	Entry   *instance.Entry   // the function that is running; nil if none is

	Earlier  int64 // units used before the call was continued
	stack    int64 // bytes of stack that it pays for
	kept     int64 // bytes of arguments and results
	buffers  int64 // bytes of these that are paid for
	response int64 // bytes of the response that are paid for
}

const (
	// BytesPerUnit is how many bytes the host copies for a unit of fuel: as many as the
	// guest's own memory.copy does.
	BytesPerUnit = 64
	// keptFree is how many bytes a call may keep free of charge.
	keptFree = 4 << 10
)

// Charge charges the guest for n bytes that the host handles for it. It ends
// the call if a limit, a stop or a shutdown requires it.
func (m *Meter) Charge(n int) {
	if n >= BytesPerUnit {
		m.Pay(int64(n / BytesPerUnit))
	}
}

// Check ends the call if it has to end.
func (m *Meter) Check() { m.Pay(0) }

// Pay charges the guest for units of fuel. It ends the call if it has to end.
func (m *Meter) Pay(units int64) {
	left, err := m.Fuel.Charge(int64(m.Counter.Get()), units)
	m.Counter.Set(uint64(left))
	m.Note(left)
	if err != nil {
		panic(&instance.Stop{Reason: m.exhausted(err)})
	}
}

// Refill returns the new counter value for a guest that has used up its slice of fuel.
func (m *Meter) Refill(counter int64) int64 {
	counter, err := m.Fuel.Refill(counter)
	m.Note(counter)
	if err != nil {
		panic(&instance.Stop{Reason: m.exhausted(err)})
	}
	return counter
}

// Resume charges a call that starts from a snapshot for the start-up that led to the
// snapshot, as if the call had started up itself.
func (m *Meter) Resume(s *instance.Snapshot) error {
	left, err := m.Fuel.Charge(0, s.Fuel)
	m.Counter.Set(uint64(left))
	if err != nil {
		return &instance.Stop{Reason: m.exhausted(err)}
	}
	return nil
}

// Even starts a new slice of fuel after start-up, so that a call has the same slice whether
// it started the module up or resumed a snapshot. It ends a call that overdrew its fuel.
func (m *Meter) Even() error {
	left, err := m.Fuel.Refill(m.Left())
	m.Counter.Set(uint64(left))
	m.Note(left)
	if err != nil {
		return &instance.Stop{Reason: m.exhausted(err)}
	}
	return nil
}

// Finish returns an error if the call has exceeded its budget since the last check.
func (m *Meter) Finish() error {
	if err := m.Fuel.Finish(m.Left()); err != nil {
		return &instance.Stop{Reason: m.exhausted(err)}
	}
	return nil
}

// Used returns the units of fuel used so far.
func (m *Meter) Used() int64 { return m.Fuel.Used(m.Left()) }

// Left returns the value of the fuel counter.
func (m *Meter) Left() int64 { return int64(m.Counter.Get()) }

// exhausted adds the size of the exhausted budget to an error.
func (m *Meter) exhausted(err error) error {
	if errors.Is(err, fuel.ErrExhausted) {
		return fmt.Errorf("%w after %d units", ErrFuel, m.Fuel.Budget())
	}
	return err
}

// PayStack charges for the growth of the guest's stacks.
func (m *Meter) PayStack(in *instance.Instance) error {
	if m.Entry == nil {
		return nil
	}

	n := in.Unpaid(m.Entry)
	if n <= max(m.stack, instance.StackFree) {
		return nil
	}
	if err := m.Payer.Take(instance.Stacks, uint64(n-m.stack)); err != nil {
		return err
	}
	m.stack = n
	return nil
}

// Keep charges for n bytes of arguments or results that stay on the heap until
// the call ends.
func (m *Meter) Keep(n int) error {
	m.kept += int64(n)
	more := m.kept - m.buffers
	if more <= keptFree {
		return nil
	}
	if err := m.Payer.Take(instance.Buffers, uint64(more)); err != nil {
		return err
	}
	m.buffers = m.kept
	return nil
}

// Hold charges for a response of n bytes, which replaces the previous one.
func (m *Meter) Hold(n int) (err error) {
	switch more := int64(n) - m.response; {
	case more > 0:
		err = m.Payer.Take(instance.Buffers, uint64(more))
	case more < 0:
		m.Payer.Give(instance.Buffers, uint64(-more))
	}
	if err == nil {
		m.response = int64(n)
	}
	return err
}

// Repay gives back the memory that the call has paid for.
func (m *Meter) Repay() {
	if m.stack > 0 {
		m.Payer.Give(instance.Stacks, uint64(m.stack))
	}
	if m.buffers+m.response > 0 {
		m.Payer.Give(instance.Buffers, uint64(m.buffers+m.response))
	}
	m.stack, m.buffers, m.response = 0, 0, 0
}
