package host_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// vandal reports what it finds, writes everywhere it can, and then ends as the
// letter in its arguments says.
var vandal = guest{
	initialize: seq(store(600, i32(42)), opX(wasmbin.OpGlobalSet, 1, i32(43)), drop(wasi(fnRandom, 604, 4)), drop(now(616))),
	invoke: seq(
		tell(opX(wasmbin.OpGlobalGet, 0)), tell(opX(wasmbin.OpGlobalGet, 1)), tell(load(i32(600))), tell(load(i32(512))),
		tell(load(i32(dataAt))), tell(load(i32(2054))), tell(code{0x3f, 0}), // memory.size
		drop(wasi(fnRandom, 612, 4)), tell(load(i32(604))), tell(load(i32(612))), drop(now(616)), tell(load(i32(616))),
		store(700, i32(0)), store(704, i32(0)), tell(wasi(fnFDWrite, 1, 700, 1, 708)),
		tell(grow(8)), tell(load(op(wasmbin.OpI32Sub, op(wasmbin.OpI32Mul, code{0x3f, 0}, i32(page)), i32(4)))),

		drop(read(abi.FieldArgs, 2048, 64)),
		opX(wasmbin.OpGlobalSet, 0, i32(7)), opX(wasmbin.OpGlobalSet, 1, i32(7)),
		store(512, i32(7)), store(600, i32(7)), store(dataAt, i32(7)),
		op(0x36, op(wasmbin.OpI32Sub, op(wasmbin.OpI32Mul, code{0x3f, 0}, i32(page)), i32(4)), i32(7)), code{2, 0},

		set(0, append(op(0x2d, i32(2048+6)), 0, 0)), // i32.load8_u
		chosen('e', op(wasmbin.OpReturn, i32(1))), chosen('p', op(wasmbin.OpReturn, i32(2))), chosen('t', unreachable()),
		chosen('f', forever()), chosen('x', i32(3), call(fnExit)), chosen('z', i32(0), call(fnExit)),
		chosen('s', drop(progress(0, 1, 0, 0)), forever()),
		chosen('o', forever(drop(write(abi.StreamOutput, 0, 4096)))),
		chosen('m', forever(when(op(wasmbin.OpI32Eq, grow(1), i32(-1)), unreachable()))),
		chosen('c', drop(wasi(fnPrestat, 1)), drop(wasi(fnPrestat, 2))), // which is fd_close here
		chosen('a', drop(read(abi.FieldArgs, -1, -1))),
		i32(0),
	),
	data: "data",
	change: func(m *wasmbin.Module) {
		for range 2 {
			m.Globals = append(m.Globals, wasmbin.Global{
				GlobalType: wasmbin.GlobalType{Type: wasmbin.I32, Mutable: true}, Init: append(i32(0), byte(wasmbin.OpEnd)),
			})
		}
		m.Imports[fnPrestat].Name, m.Imports[fnPrestat].Type = "fd_close", uint32(len(m.Types))
		m.Types = append(m.Types, sig("i", true))
	},
}

// now is clock_time_get of the monotonic clock into memory.
func now(at int64) code { return seq(i32(1), i64(0), i32(at), call(fnClock)) }

func chosen(letter rune, body ...code) code {
	return when(op(wasmbin.OpI32Eq, get(0), i32(int64(letter))), body...)
}

// vandals are the vandal in each mode, with the policy that leads there.
func vandals(t *testing.T) map[string]struct {
	guest guest
	call  host.Call
	mode  host.Mode
	count func(host.Stats) int64 // calls that were served in that way
} {
	mapped, fresh := vandal, vandal
	mapped.change = func(m *wasmbin.Module) { vandal.change(m); m.Memories[0].Min = 8 }
	fresh.helper = opX(wasmbin.OpTableSet, 0, i32(0), code{byte(wasmbin.OpRefNull), byte(wasmbin.FuncRef)})
	fresh.change = func(m *wasmbin.Module) { vandal.change(m); withTable(m) }
	folder := host.Policy{Files: []host.Mount{{Dir: t.TempDir(), Path: "/work"}}}
	type mode = struct {
		guest guest
		call  host.Call
		mode  host.Mode
		count func(host.Stats) int64
	}
	return map[string]mode{
		"copied":   {vandal, host.Call{}, host.Reset, func(s host.Stats) int64 { return s.Warm }},
		"mapped":   {mapped, host.Call{}, host.Reset, func(s host.Stats) int64 { return s.Warm }},
		"restored": {mapped, host.Call{Policy: folder}, host.Reset, func(s host.Stats) int64 { return s.Restored }},
		"started":  {mapped, host.Call{ImpureInit: true}, host.Reset, func(s host.Stats) int64 { return s.Started }},
		"fresh":    {fresh, host.Call{}, host.Fresh, func(s host.Stats) int64 { return s.Started }},
	}
}

// TestEveryCallFindsACleanWorld: a plugin that writes everywhere it can, and
// then ends in each way a call can, finds on its next call what it found on its
// first, in each mode.
func TestEveryCallFindsACleanWorld(t *testing.T) {
	endings := map[rune]abi.Kind{
		'0': abi.Success, 'c': abi.Success, 'e': abi.ToolError, 'p': abi.Internal, 't': abi.Internal, 'f': abi.LimitReached,
		'x': abi.ToolError, 'z': abi.Internal, 's': abi.CanceledKind, 'o': abi.LimitReached, 'm': abi.LimitReached, 'a': abi.Internal,
	}
	h := newHost(t, nil)
	for name, mode := range vandals(t) {
		t.Run(name, func(t *testing.T) {
			m := compile(t, h, mode.guest.wasm())
			require.Equal(t, mode.mode, m.Isolation.Mode, m.Isolation.Why)
			look := func(letter rune) outcome {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				req := mode.call
				req.Args = fmt.Appendf(nil, `{"e":"%c"}`, letter)
				req.Policy.Fuel, req.Policy.Output, req.Policy.Memory = 100_000, 50_000, 20*page
				req.Progress = func(host.Progress) { cancel() }
				return do(ctx, h, m, req)
			}
			first := look('0')
			require.NoError(t, first.err)
			require.Len(t, first.codes(), 13)
			require.Equal(t, []int32{0, 43, 42, 0}, first.codes()[:4])
			require.Zero(t, first.codes()[5], "arguments of no call before")
			require.Zero(t, first.codes()[12], "at the end of the grown memory")
			for letter, kind := range endings {
				for range 2 {
					bad := look(letter)
					require.Equal(t, kind, bad.Kind, "%c: %v", letter, bad.err)
					require.Equal(t, first.codes(), bad.codes()[:13], "%c", letter)
					again := look('0')
					require.NoError(t, again.err)
					require.Equal(t, first.codes(), again.codes(), "after %c", letter)
					require.Equal(t, first.Usage.Fuel, again.Usage.Fuel, "after %c", letter)
					require.Equal(t, first.Usage.MemoryPeak, again.Usage.MemoryPeak, "after %c", letter)
				}
			}
			require.Greater(t, mode.count(m.Stats()), int64(len(endings)/2), "the mode was at work: %+v", m.Stats())
		})
	}
}

// TestAllOfMemoryIsPutBack: however much of its memory a call writes to, and
// however large that is, every byte is what it was.
func TestAllOfMemoryIsPutBack(t *testing.T) {
	fill := func(from, n, value int64) code { return append(seq(i32(from), i32(value), i32(n)), 0xfc, 0x0b, 0) }
	// sum tells the sum of all words of memory.
	sum := func() code {
		return seq(set(0, i32(0)), set(1, i32(0)), loop(
			set(0, op(wasmbin.OpI32Add, op(wasmbin.OpI32Mul, get(0), i32(31)), load(get(1)))),
			set(1, op(wasmbin.OpI32Add, get(1), i32(4))),
			when(op(wasmbin.OpI32Sub, op(wasmbin.OpI32Mul, code{0x3f, 0}, i32(page)), get(1)), br(1)),
		), tell(get(0)))
	}
	h := newHost(t, nil)
	for _, pages := range []int64{1, 2, 3, 40} {
		for name, dirty := range map[string]code{
			"all": fill(0, pages*page, 7), "half": fill(pages*page/2, pages*page/2, 7),
			"edges":    seq(store(0, i32(7)), store(pages*page-4, i32(7))),
			"a third":  fill(page/3, pages*page/3, 7),
			"and more": seq(drop(grow(3)), fill(0, (pages+3)*page, 7)),
		} {
			m := compile(t, h, guest{
				initialize: seq(fill(page/2, pages*page/2, 5), store(pages*page-4, i32(77))),
				invoke:     seq(store(0, i32(0)), sum(), dirty, i32(0)),
				data:       "data",
				change:     func(m *wasmbin.Module) { m.Memories[0].Min = uint32(pages) },
			}.wasm())
			var first outcome
			for i := range 4 {
				o := do(context.Background(), h, m, host.Call{})
				require.NoError(t, o.err)
				if i == 0 {
					first = o
				}
				require.Equal(t, first.codes(), o.codes(), "%d pages, %s, call %d", pages, name, i)
			}
			require.NotZero(t, first.codes()[0])
			require.Equal(t, int64(2), m.Stats().Warm)
		}
	}
}

// TestSnapshotsAreNotShared: what starts up under one policy does not serve
// another.
func TestSnapshotsAreNotShared(t *testing.T) {
	h := newHost(t, nil)
	m := compile(t, h, guest{
		initialize: seq(drop(wasi(fnEnv, 512, 516)), drop(now(520))),
		invoke:     seq(tell(load(i32(512))), tell(load(i32(516))), tell(load(i32(520))), i32(0)),
	}.wasm())
	for range 3 {
		none := do(context.Background(), h, m, host.Call{})
		require.Equal(t, []int32{0, 0, 1000}, none.codes())
		one := do(context.Background(), h, m, host.Call{Policy: host.Policy{Env: map[string]string{"A": "b"}}})
		require.Equal(t, []int32{1, 4, 1000}, one.codes())
		other := do(context.Background(), h, m, host.Call{Policy: host.Policy{Env: map[string]string{"A": "bc"}}})
		require.Equal(t, []int32{1, 5, 1000}, other.codes())
		clock := do(context.Background(), h, m, host.Call{Policy: host.Policy{Clock: true}})
		require.NotEqual(t, int32(1000), clock.codes()[2])
	}
	require.Equal(t, int64(4), m.Stats().Started)
}

// TestStartingUp: what a plugin does while it starts up decides whether other
// calls may continue from there, and each call sees the same either way.
func TestStartingUp(t *testing.T) {
	for name, c := range map[string]struct {
		initialize code
		policy     host.Policy
		restored   bool
		shared     bool
	}{
		"nothing":           {initialize: store(512, i32(1)), shared: true},
		"fixed randomness":  {initialize: drop(wasi(fnRandom, 512, 4)), shared: true},
		"real randomness":   {initialize: drop(wasi(fnRandom, 512, 4)), policy: host.Policy{Random: true}},
		"that is renewed":   {initialize: drop(wasi(fnRandom, 512, 4)), policy: host.Policy{Random: true}, restored: true, shared: true},
		"reads arguments":   {initialize: drop(read(abi.FieldArgs, 512, 4))},
		"writes output":     {initialize: drop(write(abi.StreamOutput, 512, 4))},
		"writes to WASI":    {initialize: drop(wasi(fnFDWrite, 1, 700, 0, 708))},
		"reports a message": {initialize: drop(progress(0, 1, 0, 0))},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			g := guest{initialize: c.initialize, invoke: seq(tell(load(i32(800))), i32(0))}
			if c.restored {
				g.helper = seq(store(800, op(wasmbin.OpI32Add, load(i32(800)), i32(1))), drop(wasi(fnRandom, 512, 4)))
				g.change = func(m *wasmbin.Module) {
					m.Exports = append(m.Exports, wasmbin.Export{Name: abi.ExportRestored, Index: fnHelper})
				}
			}
			m := compile(t, h, g.wasm())
			first := do(context.Background(), h, m, host.Call{Policy: c.policy})
			require.NoError(t, first.err)
			for range 2 {
				again := do(context.Background(), h, m, host.Call{Policy: c.policy})
				require.Equal(t, first.stdout, again.stdout)
				require.Equal(t, first.Usage.Fuel, again.Usage.Fuel)
			}
			if c.restored {
				require.Equal(t, int32(1), first.codes()[len(first.codes())-1], "toolhost_restored ran once before each call")
			}
			require.Equal(t, c.shared, m.Stats().Started == 1, "%+v", m.Stats())
			require.Equal(t, c.shared, m.Stats().Startup == "", "%+v", m.Stats())
		})
	}
}

// TestWarmingUp: a plugin that can describe itself does so once before its
// snapshot is taken. Whatever comes of that, all calls see and cost the same.
func TestWarmingUp(t *testing.T) {
	mark := store(512, op(wasmbin.OpI32Add, load(i32(512)), i32(1)))
	for name, c := range map[string]struct {
		describe code
		found    int32 // by each call
	}{
		"is kept":             {seq(mark, drop(write(abi.StreamManifest, 0, 4)), i32(0)), 1},
		"sees no call":        {seq(store(512, read(abi.FieldArgs, 600, 64)), i32(0)), abi.Absent},
		"traps":               {seq(mark, unreachable()), 0},
		"says it failed":      {seq(mark, i32(1)), 0},
		"exits":               {seq(mark, i32(0), call(fnExit), i32(0)), 0},
		"writes output":       {seq(mark, drop(wasi(fnFDWrite, 1, 700, 0, 708)), i32(0)), 0},
		"writes too much":     {seq(mark, forever(drop(write(abi.StreamManifest, 0, 60000))), i32(0)), 0},
		"grows and then ends": {seq(mark, drop(grow(5)), unreachable()), 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			m := compile(t, h, guest{describe: c.describe, invoke: seq(tell(load(i32(512))), tell(code{0x3f, 0}), i32(0))}.wasm())
			first := do(context.Background(), h, m, host.Call{})
			require.NoError(t, first.err)
			require.Equal(t, []int32{c.found, 1}, first.codes())
			for range 3 {
				again := do(context.Background(), h, m, host.Call{})
				require.NoError(t, again.err)
				require.Equal(t, first.codes(), again.codes())
				require.Equal(t, first.Usage.Fuel, again.Usage.Fuel)
			}
			require.Positive(t, m.Stats().Warm)
		})
	}
}

// TestWarmingUpWithACallThatEnds: that a call was over while it warmed the
// plugin up says nothing about the plugin.
func TestWarmingUpWithACallThatEnds(t *testing.T) {
	h := newHost(t, nil)
	m := compile(t, h, guest{describe: seq(store(512, i32(1)), times(300_000, drop(load(i32(0)))), i32(0)), invoke: seq(tell(load(i32(512))), i32(0))}.wasm())
	short := do(context.Background(), h, m, host.Call{Policy: host.Policy{Timeout: time.Microsecond}})
	require.ErrorIs(t, short.err, context.DeadlineExceeded)
	for range 3 {
		require.Equal(t, []int32{1}, do(context.Background(), h, m, host.Call{}).codes())
	}
	require.Empty(t, m.Stats().Startup)
}

// TestStartingUpIsPaidByEachCall: a budget that does not pay for starting up
// ends a call whether or not it has to start up itself.
func TestStartingUpIsPaidByEachCall(t *testing.T) {
	h := newHost(t, nil)
	m := compile(t, h, guest{initialize: times(10_000, code{byte(wasmbin.OpNop)}), invoke: i32(0)}.wasm())
	full := do(context.Background(), h, m, host.Call{})
	require.NoError(t, full.err)
	for range 3 {
		require.NoError(t, do(context.Background(), h, m, host.Call{Policy: host.Policy{Fuel: full.Usage.Fuel}}).err)
		short := do(context.Background(), h, m, host.Call{Policy: host.Policy{Fuel: full.Usage.Fuel / 2}})
		require.ErrorIs(t, short.err, host.ErrFuel)
		require.Equal(t, full.Usage.Fuel/2, short.Usage.Fuel)
	}
}
