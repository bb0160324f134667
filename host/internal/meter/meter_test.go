package meter_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/meter"
	"github.com/toolhost/toolhost/internal/fuel"
)

// counter is a global of a guest that counts its fuel.
type counter struct {
	api.MutableGlobal
	left uint64
}

func (c *counter) Get() uint64     { return c.left }
func (c *counter) Set(left uint64) { c.left = left }

func newMeter(budget int64) *meter.Meter {
	m := &meter.Meter{
		Fuel: fuel.NewMeter(budget, func() error { return nil }), Counter: new(counter),
		Memory: new(instance.Memory), Live: new(meter.Live),
	}
	m.Check() // the first slice
	return m
}

// stopped returns the reason with which f ends the call.
func stopped(t *testing.T, f func()) (reason error) {
	t.Helper()
	defer func() {
		stop, ok := recover().(*instance.Stop)
		require.True(t, ok, "the call goes on")
		reason = stop.Reason
	}()
	f()
	return nil
}

func TestChargesBytes(t *testing.T) {
	m := newMeter(1000)
	m.Charge(meter.BytesPerUnit - 1)
	require.Zero(t, m.Used())
	m.Charge(10 * meter.BytesPerUnit)
	require.Equal(t, int64(10), m.Used())
	require.Equal(t, int64(10), m.Live.Fuel.Load())
}

func TestEndsCallWithoutFuel(t *testing.T) {
	m := newMeter(1000)
	m.Pay(900)
	err := stopped(t, func() { m.Pay(200) })
	require.ErrorIs(t, err, meter.ErrFuel)
	require.EqualError(t, err, "out of fuel after 1000 units")
}

func TestEarlierUnitsAreNotReported(t *testing.T) {
	m := newMeter(1000)
	m.Earlier = 300
	m.Pay(500)
	require.Equal(t, int64(500), m.Used())
	require.Equal(t, int64(200), m.Live.Fuel.Load())
}
