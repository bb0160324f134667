package host_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

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
	for way, change := range map[string]func(*host.Host){
		"pages": func(*host.Host) {}, "madvise": (*host.Host).Blind, "heap": (*host.Host).OnHeap,
	} {
		h := newHost(t, nil)
		change(h)
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
					require.Equal(t, first.codes(), o.codes(), "%s, %d pages, %s, call %d", way, pages, name, i)
				}
				require.NotZero(t, first.codes()[0])
				if way != "heap" || pages < 16 {
					require.Equal(t, int64(3), m.Stats().Warm)
				}
			}
		}
	}
}

// TestMemoryThatStartsEmpty: a memory may have no pages at first, and has none
// again for the next call.
func TestMemoryThatStartsEmpty(t *testing.T) {
	for way, change := range map[string]func(*host.Host){"mapped": func(*host.Host) {}, "heap": (*host.Host).OnHeap} {
		t.Run(way, func(t *testing.T) {
			h := newHost(t, nil)
			change(h)
			m := compile(t, h, guest{
				invoke: seq(set(0, grow(2)), tell(get(0)), tell(load(i32(512))), store(512, i32(7)), store(page+512, i32(7)), tell(grow(1)), i32(0)),
				change: func(m *wasmbin.Module) { m.Memories[0].Min = 0 },
			}.wasm())
			for range 4 {
				o := do(context.Background(), h, m, host.Call{})
				require.NoError(t, o.err)
				require.Equal(t, []int32{0, 0, 2}, o.codes())
				require.Equal(t, int64(3*page), o.Usage.MemoryPeak)
			}
			require.Equal(t, int64(3), m.Stats().Warm)
		})
	}
}

// TestGrownMemory: memory that a call has grown is zero for the next call, which may
// grow into it again. The part that is kept is counted and bounded. It is not kept
// after a call that did not need it, nor by a host that is short of memory.
func TestGrownMemory(t *testing.T) {
	// Grows by as many pages as its arguments say, in two letters, and reads and
	// writes the first and the last bytes of them.
	digit := func(at int64) code {
		return op(0x71, load(i32(dataAt+at)), i32(31)) // i32.and
	}
	g := guest{invoke: seq(
		drop(read(abi.FieldArgs, dataAt, 8)),
		set(0, op(wasmbin.OpI32Add, op(wasmbin.OpI32Mul, digit(1), i32(32)), digit(2))),
		set(1, append(op(wasmbin.OpMemoryGrow, get(0)), 0)), tell(get(1)),
		when(get(0),
			set(2, op(wasmbin.OpI32Sub, op(wasmbin.OpI32Mul, code{0x3f, 0}, i32(page)), i32(4))),
			tell(load(i32(page))), tell(load(get(2))),
			store(page, i32(7)), append(op(0x36, get(2), i32(7)), 2, 0),
			seq(i32(page), i32(7), op(wasmbin.OpI32Mul, get(0), i32(page)), code{0xfc, 11, 0}),
		), i32(0),
	)}
	args := func(pages int) []byte { return []byte{'"', byte('`' + pages/32), byte('`' + pages%32), '"'} }
	for way, change := range map[string]func(*host.Host){
		"pages": func(*host.Host) {}, "madvise": (*host.Host).Blind, "heap": (*host.Host).OnHeap,
	} {
		t.Run(way, func(t *testing.T) {
			h := newHost(t, nil)
			change(h)
			m := compile(t, h, g.wasm())
			for _, c := range []struct{ grown, kept int }{
				{0, 0}, {1, 1}, {1, 1}, {2, 2}, {3, 3}, {1, 1}, {3, 3}, {0, 0}, {40, 40}, {40, 40}, {200, 64}, {200, 64}, {64, 64}, {2, 2}, {0, 0},
			} {
				o := do(context.Background(), h, m, host.Call{Args: args(c.grown)})
				require.NoError(t, o.err)
				require.Equal(t, make([]int32, len(o.codes())-1), o.codes()[1:])
				require.EqualValues(t, 1, o.codes()[0])
				require.Equal(t, int64(1+c.grown)*page, o.Usage.MemoryPeak)
				if way == "pages" {
					require.Equal(t, int64(1+c.kept)*page, m.Stats().MemoryOf.Instances, "%d grown", c.grown)
				}
				require.LessOrEqual(t, m.Stats().MemoryOf.Instances, int64(1+c.kept)*page)
			}
			require.GreaterOrEqual(t, m.Stats().Warm, int64(9))
		})
	}
	t.Run("little left", func(t *testing.T) {
		h := hostWith(t, host.Config{Memory: 40 * page})
		m := compile(t, h, g.wasm())
		for _, c := range []struct{ grown, kept int }{{10, 10}, {30, 0}, {10, 10}, {19, 19}, {20, 0}} {
			require.NoError(t, do(context.Background(), h, m, host.Call{Args: args(c.grown)}).err)
			require.EqualValues(t, (1+c.kept)*page, m.Stats().Memory, "%d grown", c.grown)
		}
		other := compile(t, h, guest{invoke: seq(tell(grow(35)), i32(0))}.wasm())
		require.NoError(t, do(context.Background(), h, m, host.Call{Args: args(10)}).err)
		require.Equal(t, []int32{1}, do(context.Background(), h, other, host.Call{}).codes(), "for which it is given up")
		require.Zero(t, m.Stats().Memory)
	})
}

// TestSparseData: data that is far apart does not cost what lies between.
func TestSparseData(t *testing.T) {
	h := hostWith(t, host.Config{Memory: 260 << 20})
	m := compile(t, h, guest{
		invoke: seq(tell(load(i32(200<<20))), store(200<<20, i32(7)), i32(0)), data: "data",
		change: func(m *wasmbin.Module) {
			m.Memories[0].Min = 250 << 20 / page
			m.Data = append(m.Data, wasmbin.Data{Offset: append(i32(200<<20), byte(wasmbin.OpEnd)), Init: []byte{5}})
		},
	}.wasm())
	require.Equal(t, host.Isolation{Mode: host.Fresh, Why: "its data is spread too far"}, m.Isolation)
	require.Zero(t, h.Stats().Memory)
	for range 3 {
		o := do(context.Background(), h, m, host.Call{Policy: host.Policy{Memory: 256 << 20}})
		require.NoError(t, o.err)
		require.Equal(t, []int32{5}, o.codes())
	}
}

// TestSnapshotsAreNotShared: what starts up under one policy does not serve
// another.
func TestSnapshotsAreNotShared(t *testing.T) {
	h := newHost(t, nil)
	m := compile(t, h, guest{
		initialize: seq(drop(wasi(fnEnv, 512, 516)), drop(today(520))),
		invoke:     seq(tell(load(i32(512))), tell(load(i32(516))), tell(load(i32(520))), i32(0)),
	}.wasm())
	began := int32(time.Date(2022, 1, 1, 0, 0, 0, int(time.Microsecond), time.UTC).UnixNano()) // the lower half
	for range 3 {
		none := do(context.Background(), h, m, host.Call{})
		require.Equal(t, []int32{0, 0, began}, none.codes())
		one := do(context.Background(), h, m, host.Call{Policy: host.Policy{Grant: host.Grant{Env: map[string]string{"A": "b"}}}})
		require.Equal(t, []int32{1, 4, began}, one.codes())
		other := do(context.Background(), h, m, host.Call{Policy: host.Policy{Grant: host.Grant{Env: map[string]string{"A": "bc"}}}})
		require.Equal(t, []int32{1, 5, began}, other.codes())
		clock := do(context.Background(), h, m, host.Call{Policy: host.Policy{Grant: host.Grant{Clock: true}}})
		require.NotEqual(t, began, clock.codes()[2])
	}
	require.Equal(t, int64(6), m.Stats().Warm)
	require.Equal(t, int64(3+3), m.Stats().Started, "the first calls, and each that reads the real clock")
}

// TestStartingUp: what a plugin does while it starts up decides whether other
// calls may continue from there, and each call sees the same either way.
func TestStartingUp(t *testing.T) {
	for name, c := range map[string]struct {
		initialize code
		policy     host.Policy
		restored   bool
		shared     bool
		prestat    string // a function of the same type, in place of fd_prestat_get
	}{
		"state of a stream":    {initialize: drop(wasi(fnPrestat, 2, 512)), shared: true, prestat: "fd_filestat_get"},
		"position of a stream": {initialize: drop(wasi(fnPrestat, 0, 512)), shared: true, prestat: "fd_tell"},
		"state of a folder":    {initialize: drop(wasi(fnPrestat, 3, 512)), prestat: "fd_filestat_get"},
		"nothing":              {initialize: store(512, i32(1)), shared: true},
		"fixed randomness":     {initialize: drop(wasi(fnRandom, 512, 4)), shared: true},
		"real randomness":      {initialize: drop(wasi(fnRandom, 512, 4)), policy: host.Policy{Grant: host.Grant{Random: true}}},
		"that is renewed":      {initialize: drop(wasi(fnRandom, 512, 4)), policy: host.Policy{Grant: host.Grant{Random: true}}, restored: true, shared: true},
		"reads arguments":      {initialize: drop(read(abi.FieldArgs, 512, 4))},
		"writes output":        {initialize: drop(write(abi.StreamOutput, 512, 4))},
		"writes to WASI":       {initialize: drop(wasi(fnFDWrite, 1, 700, 0, 708))},
		"standing clock":       {initialize: drop(now(512)), shared: true},
		"monotonic clock":      {initialize: drop(now(512)), policy: host.Policy{Grant: host.Grant{Clock: true}}, shared: true},
		"standing time":        {initialize: drop(today(512)), shared: true},
		"real time":            {initialize: drop(today(512)), policy: host.Policy{Grant: host.Grant{Clock: true}}},
		"environment":          {initialize: drop(wasi(fnEnv, 512, 516)), policy: host.Policy{Grant: host.Grant{Env: map[string]string{"A": "b"}}}, shared: true},
		"arguments of WASI":    {initialize: drop(wasi(fnArgs, 512, 516)), shared: true},
		"folders":              {initialize: drop(wasi(fnPrestat, 3, 512)), policy: host.Policy{Grant: host.Grant{Files: []host.Mount{{Dir: t.TempDir(), Path: "/work"}}}}, shared: true},
		"reads input":          {initialize: drop(wasi(fnFDRead, 0, 700, 0, 708))},
		"sleeps":               {initialize: drop(wasi(fnPoll, 700, 708, 0, 716))},
		"exits":                {initialize: seq(i32(0), call(fnExit))},
		"traps":                {initialize: unreachable()},
		"reports a message":    {initialize: drop(progress(0, 1, 0, 0))},
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
			if c.prestat != "" {
				g.change = func(m *wasmbin.Module) { m.Imports[fnPrestat].Name = c.prestat }
			}
			m := compile(t, h, g.wasm())
			first := do(context.Background(), h, m, host.Call{Policy: c.policy})
			for range 2 {
				again := do(context.Background(), h, m, host.Call{Policy: c.policy})
				require.Equal(t, first.err, again.err)
				require.Equal(t, first.Kind, again.Kind)
				require.Equal(t, first.stdout, again.stdout)
				require.Equal(t, first.Usage.Fuel, again.Usage.Fuel)
			}
			if c.restored {
				require.Equal(t, int32(1), first.codes()[len(first.codes())-1], "toolhost_restored ran once before each call")
			}
			require.Equal(t, c.shared, m.Stats().Started == 1, "%+v", m.Stats())
			require.Equal(t, c.shared || first.err != nil, m.Stats().Startup == "", "%+v", m.Stats())
		})
	}
}

// TestClockOfStartUp: the monotonic clock of a call begins where the start-up has left it,
// whenever that was, and advances by the time that the call takes.
func TestClockOfStartUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		sleep := drop(wasi(fnPoll, dataAt, 700, 1, 708))
		for _, c := range []struct {
			name    string
			startup code
			shared  bool
			want    []int32 // microseconds, since the first reading
		}{
			{"reads", seq(drop(now(512)), drop(now(520))), true, []int32{1, 1, 5001}},
			{"sleeps", seq(drop(now(512)), sleep, drop(now(520))), false, []int32{5001, 5001, 10001}},
		} {
			clock := []byte(subscribed(5 * time.Millisecond))[:48]
			since := func(at int64) code { // the first reading, from another
				wrapped := seq(load(i32(at)), load(i32(512)), []byte{0x6b}, i32(1000), []byte{0x6d}) // i32.sub, i32.div_s
				return tell(wrapped)
			}
			m := compile(t, h, guest{
				data: string(clock), initialize: c.startup,
				invoke: seq(drop(now(528)), sleep, drop(now(536)), since(520), since(528), since(536), i32(0)),
			}.wasm())
			for range 3 {
				o := do(t.Context(), h, m, host.Call{Policy: host.Policy{Grant: host.Grant{Clock: true}}})
				require.NoError(t, o.err, c.name)
				require.Equal(t, c.want, o.codes(), c.name)
				time.Sleep(time.Hour)
			}
			require.Equal(t, c.shared, m.Stats().Started == 1, c.name)
		}
	})
}

// TestStartingUpForACallThatEnds: that a call was over while the plugin started
// up for it says nothing about the plugin.
func TestStartingUpForACallThatEnds(t *testing.T) {
	h := newHost(t, nil)
	m := compile(t, h, guest{initialize: seq(times(300_000, drop(load(i32(0)))), store(512, i32(1))), invoke: seq(tell(load(i32(512))), i32(0))}.wasm())
	short := do(context.Background(), h, m, host.Call{Policy: host.Policy{Timeout: time.Microsecond}})
	require.ErrorIs(t, short.err, context.DeadlineExceeded)
	for range 3 {
		require.Equal(t, []int32{1}, do(context.Background(), h, m, host.Call{}).codes())
	}
	require.Empty(t, m.Stats().Startup)
	require.EqualValues(t, 2, m.Stats().Warm)
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
