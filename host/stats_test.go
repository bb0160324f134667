package host_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// TestOutcomes: each call is counted once, by how it ended, for its module and
// for its host.
func TestOutcomes(t *testing.T) {
	h := hostWith(t, host.Config{Memory: 100 * page})
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	var want host.Outcomes
	for _, c := range []struct {
		guest  guest
		ctx    context.Context
		policy host.Policy
		count  *int64
	}{
		{guest: guest{invoke: i32(0)}, count: &want.Success},
		{guest: guest{invoke: i32(1)}, count: &want.ToolError},
		{guest: guest{invoke: i32(2)}, count: &want.Internal},
		{guest: guest{invoke: unreachable()}, count: &want.Internal},
		{guest: guest{invoke: seq(drop(write(abi.StreamError, dataAt, 25)), i32(3)), data: `{"provider":"a provider"}`}, count: &want.ConnectionRequired},
		{guest: guest{invoke: i32(0)}, ctx: gone, count: &want.Canceled},
		{guest: guest{invoke: seq(forever(), i32(0))}, policy: host.Policy{Fuel: 1000}, count: &want.Fuel},
		{guest: guest{invoke: seq(forever(), i32(0))}, policy: host.Policy{Timeout: 1}, count: &want.Time},
		{guest: guest{invoke: seq(drop(grow(9)), unreachable())}, policy: host.Policy{Memory: 2 * page}, count: &want.Memory},
		{guest: guest{invoke: seq(drop(grow(100)), unreachable())}, count: &want.HostMemory},
		{guest: guest{invoke: seq(drop(write(abi.StreamOutput, 0, 100)), i32(0))}, policy: host.Policy{Output: 99}, count: &want.Output},
	} {
		if c.ctx == nil {
			c.ctx = context.Background()
		}
		m := compile(t, h, c.guest.wasm())
		do(c.ctx, h, m, host.Call{Policy: c.policy})
		*c.count++
		require.Equal(t, want, h.Stats().Outcomes)
		require.NotEqual(t, host.Outcomes{}, m.Stats().Outcomes)
	}
}

// TestStats: figures go back where they were, and say what takes the memory.
func TestStats(t *testing.T) {
	h := newHost(t, nil)
	m := compile(t, h, echo.wasm())
	s := h.Stats()
	require.EqualValues(t, 1, s.Compiled.Cached+s.Compiled.Anew)
	require.Positive(t, s.Compiled.Time)
	compile(t, h, echo.wasm())
	require.EqualValues(t, 2, h.Stats().Compiled.Cached+h.Stats().Compiled.Anew)

	for range 3 {
		require.NoError(t, do(context.Background(), h, m, host.Call{Args: []byte(`{"a":1}`)}).err)
	}
	s = m.Stats()
	require.EqualValues(t, 3, s.Warm+s.Restored+s.Started)
	require.EqualValues(t, 2, s.Warm)
	require.Equal(t, 1, s.Instances)
	require.Equal(t, 1, s.Idle)
	require.EqualValues(t, page, s.MemoryOf.Instances)
	require.Equal(t, s.Memory, s.MemoryOf.Instances+s.MemoryOf.Images)
	require.Zero(t, s.MemoryOf.Stacks+s.MemoryOf.Buffers)

	require.NoError(t, m.Close(context.Background()))
	require.Zero(t, m.Stats().Instances)
	require.Zero(t, m.Stats().Memory)
}
