package calltree_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/calltree"
	"github.com/toolhost/toolhost/host/internal/meter"
	"github.com/toolhost/toolhost/host/internal/sched"
)

// begin begins a call that outer waits for.
func begin(outer *calltree.Caller) (*calltree.Caller, *meter.Live) {
	guest, live := new(sched.Guest), new(meter.Live)
	sched.New(func() int { return 1 }).Init(guest, context.Background(), sched.GuestOptions{})
	c := new(calltree.Caller)
	c.Begin(outer, guest, &meter.Meter{Live: live}, time.Now())
	if outer != nil {
		outer.Enter(c)
	}
	return c, live
}

func TestNestedCallsShareFuel(t *testing.T) {
	outer, _ := begin(nil)
	outer.Allow(100, 0)
	one, used := begin(outer)
	two, usedToo := begin(outer)
	require.Equal(t, []*calltree.Caller{one, two}, outer.Nested())
	require.Equal(t, 1, two.Depth())
	require.Same(t, outer, two.First())

	used.Fuel.Store(60)
	require.Equal(t, int64(40), outer.Left())
	require.False(t, outer.Overdrawn())
	usedToo.Fuel.Store(60)
	require.True(t, outer.Overdrawn(), "none of them did so alone")
	require.Equal(t, int64(1), outer.Left())
}

func TestFinishedCallsAreOwed(t *testing.T) {
	outer, live := begin(nil)
	outer.Allow(100, 7)
	inner, _ := begin(outer)
	outer.Leave(inner, abi.Usage{Fuel: 30, CPU: 5, MemoryPeak: 10})
	outer.Owe(abi.Usage{Fuel: 3, CPU: 1})

	require.Equal(t, int64(33), outer.Unpaid())
	require.Equal(t, int64(67), outer.Left())
	require.Equal(t, abi.Usage{Fuel: 33, CPU: 6, MemoryPeak: 17}, outer.Total())
	live.Fuel.Store(11)
	require.Equal(t, int64(44), outer.UsedSoFar().Fuel)
}

func TestCallsAreLimited(t *testing.T) {
	c, _ := begin(nil)
	for range abi.MaxToolCalls {
		require.True(t, c.Count())
	}
	require.False(t, c.Count())
}
