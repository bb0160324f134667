package fuel

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMeterGrantsTheBudgetExactly(t *testing.T) {
	m := NewMeter(2*Slice+10, nil)
	left, err := m.Refill(-3)
	require.NoError(t, err)
	require.EqualValues(t, Slice, left)
	require.EqualValues(t, 3, m.Used(left))
	left, err = m.Refill(-2)
	require.NoError(t, err)
	require.EqualValues(t, 3+Slice+2, m.Used(left))
	require.NoError(t, m.Finish(left))
	left, err = m.Refill(-1)
	require.NoError(t, err)
	require.EqualValues(t, 4, left, "what is left of the budget")
	require.NoError(t, m.Finish(0))
	require.ErrorIs(t, m.Finish(-1), ErrExhausted)
	require.EqualValues(t, 2*Slice+10, m.Used(-1))
}

func TestMeterEnds(t *testing.T) {
	m := NewMeter(5, nil)
	left, err := m.Refill(-6)
	require.ErrorIs(t, err, ErrExhausted)
	require.Negative(t, left)
	require.EqualValues(t, 5, m.Used(-6))
	require.EqualValues(t, 5, m.Used(1000), "the account is closed")

	stop := errors.New("stop")
	m = NewMeter(MaxBudget, func() error { return stop })
	_, err = m.Refill(-6)
	require.ErrorIs(t, err, stop)
	require.EqualValues(t, 6, m.Used(0))
	require.ErrorIs(t, m.Finish(0), stop)
	_, err = m.Charge(10, 0)
	require.ErrorIs(t, err, stop, "a charge of nothing asks too")
}

func TestMeterCharges(t *testing.T) {
	m := NewMeter(1000, nil)
	left, err := m.Charge(0, 400)
	require.NoError(t, err)
	require.EqualValues(t, 600, left)
	require.EqualValues(t, 400, m.Used(left))
	left, err = m.Charge(left, -5)
	require.NoError(t, err)
	left, err = m.Charge(left, 600)
	require.NoError(t, err)
	require.Zero(t, left)
	_, err = m.Charge(left, 1)
	require.ErrorIs(t, err, ErrExhausted)
	require.EqualValues(t, 1000, m.Used(0))

	m = NewMeter(math.MaxInt64, nil)
	require.EqualValues(t, int64(MaxBudget), m.Budget())
	left, err = m.Charge(0, MaxBudget)
	require.NoError(t, err)
	require.EqualValues(t, int64(MaxBudget), m.Used(left))
	_, err = m.Charge(left, math.MaxInt64)
	require.ErrorIs(t, err, ErrExhausted)
	require.EqualValues(t, 0, NewMeter(-1, nil).Budget())
}
