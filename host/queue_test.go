package host_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// TestTotalCalls: calls of all modules together are bounded too. One that waits
// too long says what it waited for, and background runs do not wait.
func TestTotalCalls(t *testing.T) { synctest.Test(t, testTotalCalls) }

func testTotalCalls(t *testing.T) {
	h := hostWith(t, host.Config{TotalCalls: 1})
	a, b := compile(t, h, held.wasm()), compile(t, h, guest{invoke: held.invoke, data: "another"}.wasm())
	first := hold(t, h, a, host.Call{})
	<-first.in
	second := hold(t, h, b, host.Call{})
	untilWaiting(t, b, 1)

	late := do(context.Background(), h, b, host.Call{Policy: host.Policy{Timeout: time.Millisecond}})
	require.ErrorIs(t, late.err, context.DeadlineExceeded)
	var waited *host.WaitedError
	require.ErrorAs(t, late.err, &waited)
	require.Equal(t, host.TimeoutError{Limit: time.Millisecond}, waited.Err)
	require.ErrorContains(t, late.err, "time limit of 1ms reached while the call waited: at most 1 calls run at a time on this host: retry")
	require.Equal(t, abi.LimitTime, late.Limit)

	background := hold(t, h, b, host.Call{Background: true})
	<-background.in
	background.release(t)
	first.release(t)
	<-second.in
	second.release(t)

	s := h.Stats()
	require.EqualValues(t, 2, s.Waited, "the second and the late one")
	require.Equal(t, 2*time.Millisecond, s.WaitTime)
	require.Equal(t, host.Outcomes{Success: 3, Time: 1}, s.Outcomes)
	require.Equal(t, host.Outcomes{Success: 1}, a.Stats().Outcomes)
	require.Zero(t, s.Waiting+s.Running)
}

// TestPlaceGivenBack: a call that continues in the background frees a slot for
// another direct call, once.
func TestPlaceGivenBack(t *testing.T) {
	h := hostWith(t, host.Config{TotalCalls: 1})
	m := compile(t, h, held.wasm())
	var giveBack func()
	first := hold(t, h, m, host.Call{Observers: host.Observers{Admitted: func(f func()) { giveBack = f }}})
	<-first.in
	second := hold(t, h, m, host.Call{})
	untilWaiting(t, m, 1)
	giveBack()
	giveBack()
	<-second.in
	third := hold(t, h, m, host.Call{})
	untilWaiting(t, m, 1)
	first.release(t)
	require.EqualValues(t, 1, h.Stats().Waiting, "the first has no place to leave any more")
	second.release(t)
	<-third.in
	third.release(t)
}

// TestCallsOfOneModuleHoldUpNobody: those that wait for their module or their
// turn have no place among all calls.
func TestCallsOfOneModuleHoldUpNobody(t *testing.T) {
	h := hostWith(t, host.Config{TotalCalls: 3, Calls: 2})
	a, b := compile(t, h, held.wasm()), compile(t, h, guest{invoke: held.invoke, data: "another"}.wasm())
	var holders []*holder
	for range 2 {
		holders = append(holders, hold(t, h, a, host.Call{Traits: host.Traits{Serial: true}, Session: "s"}), hold(t, h, a, host.Call{}))
	}
	untilWaiting(t, a, 2) // one for its turn, one for the module
	other := hold(t, h, b, host.Call{})
	<-other.in
	other.release(t)
	for _, o := range holders {
		o.let()
	}
	for _, o := range holders {
		require.NoError(t, (<-o.done).err)
	}
}

// recursive never ends.
var recursive = guest{helper: call(fnHelper), invoke: seq(call(fnHelper), i32(0))}

// TestStacksCount: what a guest's recursion takes on Go's heap counts as memory
// of the host.
func TestStacksCount(t *testing.T) {
	h := hostWith(t, host.Config{Memory: 4 << 20})
	m := compile(t, h, recursive.wasm())
	o := do(context.Background(), h, m, host.Call{})
	require.ErrorIs(t, o.err, host.ErrHostMemory)
	require.Equal(t, abi.LimitMemory, o.Limit)
	s := h.Stats()
	require.LessOrEqual(t, s.MemoryPeak, int64(4<<20))
	require.Zero(t, s.MemoryOf.Stacks)
	require.Equal(t, host.Outcomes{HostMemory: 1}, s.Outcomes)

	roomy := hostWith(t, host.Config{})
	o = do(context.Background(), roomy, compile(t, roomy, recursive.wasm()), host.Call{})
	require.ErrorIs(t, o.err, host.ErrTrap)
	require.Greater(t, roomy.Stats().MemoryPeak, int64(10<<20))
	require.Less(t, roomy.Stats().Memory, int64(1<<20))
}

// TestStacksStay: an instance keeps the stack of a short recursion for its next call and
// pays for it, and forgets that of a deep one.
func TestStacksStay(t *testing.T) {
	deep := func(calls int64) guest { // it counts down in its memory
		left := i32(dataAt)
		return guest{
			helper: when(load(left), store(dataAt, op(wasmbin.OpI32Sub, load(left), i32(1))), call(fnHelper)),
			invoke: seq(store(dataAt, i32(calls)), call(fnHelper), i32(0)),
		}
	}
	h := hostWith(t, host.Config{})
	for _, c := range []struct{ calls, least, most int64 }{{1, 0, 0}, {800, 20_000, 128 << 10}, {100_000, 0, 0}} {
		m := compile(t, h, deep(c.calls).wasm())
		before := h.Stats().MemoryOf
		for range 3 {
			require.NoError(t, do(t.Context(), h, m, host.Call{}).err)
			kept := m.Stats().MemoryOf.Instances - page
			require.GreaterOrEqual(t, kept, c.least, "%d calls", c.calls)
			require.LessOrEqual(t, kept, c.most, "%d calls", c.calls)
			require.Zero(t, h.Stats().MemoryOf.Stacks)
		}
		require.EqualValues(t, 2, m.Stats().Warm)
		h.Expire()
		require.Equal(t, before.Instances, h.Stats().MemoryOf.Instances)
	}
}

// TestStacksOfACallCount: a call pays for the stacks of all functions that it has entered.
func TestStacksOfACallCount(t *testing.T) {
	left := i32(dataAt)
	peak := func(restored int64) int64 {
		h := hostWith(t, host.Config{})
		m := compile(t, h, guest{
			initialize: seq(store(dataAt, i32(restored)), drop(wasi(fnRandom, 512, 4))),
			helper:     when(load(left), store(dataAt, op(wasmbin.OpI32Sub, load(left), i32(1))), call(fnHelper)),
			invoke:     seq(store(dataAt, i32(100_000)), call(fnHelper), i32(0)),
			change: func(m *wasmbin.Module) {
				m.Exports = append(m.Exports, wasmbin.Export{Name: abi.ExportRestored, Index: fnHelper})
			},
		}.wasm())
		require.NoError(t, do(t.Context(), h, m, host.Call{Policy: host.Policy{Grant: host.Grant{Random: true}}}).err)
		return h.Stats().MemoryPeak
	}
	require.Greater(t, peak(100_000), peak(0)*3/2)
}

// TestBuffersCount: so do large arguments and results while a call runs.
func TestBuffersCount(t *testing.T) {
	h := hostWith(t, host.Config{Memory: 8 * page})
	writes := func(stream abi.Stream) *host.Module {
		return compile(t, h, guest{invoke: seq(times(64, drop(write(stream, 0, 16<<10))), i32(0))}.wasm())
	}
	for _, stream := range []abi.Stream{abi.StreamResult, abi.StreamError} {
		o := do(context.Background(), h, writes(stream), host.Call{})
		require.ErrorIs(t, o.err, host.ErrHostMemory)
		require.ErrorIs(t, o.err, host.ErrMemory)
		require.ErrorContains(t, o.err, "may hold 524288 bytes together")
	}
	require.NoError(t, do(context.Background(), h, writes(abi.StreamOutput), host.Call{}).err, "which is not kept")

	m := compile(t, h, held.wasm())
	o := do(context.Background(), h, m, host.Call{Args: []byte(`"` + strings.Repeat("x", 9*page) + `"`)})
	require.ErrorIs(t, o.err, host.ErrHostMemory)
	require.Equal(t, abi.LimitMemory, o.Limit)
	waits := hold(t, h, m, host.Call{Args: []byte(`"` + strings.Repeat("x", 2*page) + `"`)})
	<-waits.in
	require.EqualValues(t, 2*page+2, h.Stats().MemoryOf.Buffers)
	waits.release(t)
	require.Zero(t, h.Stats().MemoryOf.Buffers)
}

// TestMemoryPeakIsOfTheCall: not of its instance, which serves others too.
func TestMemoryPeakIsOfTheCall(t *testing.T) {
	h := hostWith(t, host.Config{})
	m := compile(t, h, guest{invoke: seq(
		drop(read(abi.FieldArgs, dataAt, 4)),
		when(op(wasmbin.OpI32Eq, load(i32(dataAt)), i32(int64('m')|'o'<<8|'r'<<16|'e'<<24)), drop(grow(3))), i32(0),
	)}.wasm())
	for _, c := range []struct {
		args  string
		pages int64
	}{{`{}`, 1}, {`more`, 4}, {`{}`, 1}, {`more`, 4}} {
		o := do(context.Background(), h, m, host.Call{Args: []byte(c.args)})
		require.NoError(t, o.err)
		require.Equal(t, c.pages*page, o.Usage.MemoryPeak)
	}
	s := m.Stats()
	require.EqualValues(t, 3, s.Warm)
	require.Equal(t, 1, s.Instances)
	require.EqualValues(t, 4*page, s.MemoryOf.Instances, "what the last call has grown by waits for the next one")
}
