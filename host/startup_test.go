package host_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// writerFunc is a writer.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// speaker writes output while it starts up, and when it is called.
var speaker = guest{
	initialize: drop(write(abi.StreamOutput, 512, 4)),
	invoke:     seq(drop(write(abi.StreamOutput, 512, 4)), i32(0)),
}

// listener only writes when it is called, and can be put back.
var listener = guest{invoke: speaker.invoke}

// TestNobodyWaitsForAWriter: a call whose caller is slow to take what it writes
// keeps no other waiting.
func TestNobodyWaitsForAWriter(t *testing.T) {
	for name, g := range map[string]guest{"while it starts up": speaker, "after it": listener} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			m := compile(t, h, g.wasm())
			held, taken, done := make(chan struct{}, 2), make(chan struct{}), make(chan outcome, 1)
			take := sync.OnceFunc(func() { close(taken) })
			t.Cleanup(take)
			go func() {
				done <- do(context.Background(), h, m, host.Call{Observers: host.Observers{Stdout: writerFunc(func(p []byte) (int, error) {
					held <- struct{}{}
					<-taken
					return len(p), nil
				})}})
			}()
			<-held
			for range 3 {
				require.NoError(t, do(context.Background(), h, m, host.Call{}).err)
			}
			take()
			require.NoError(t, (<-done).err)
		})
	}
}

// TestCallsWithinCalls: what a caller does when its call writes may be to call
// the same plugin.
func TestCallsWithinCalls(t *testing.T) {
	for name, g := range map[string]guest{"while it starts up": speaker, "after it": listener} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			m := compile(t, h, g.wasm())
			var deep func(level int) outcome
			deep = func(level int) outcome {
				var inner error
				o := do(context.Background(), h, m, host.Call{Observers: host.Observers{Stdout: writerFunc(func(p []byte) (int, error) {
					if level > 0 && inner == nil {
						inner = deep(level - 1).err
					}
					return len(p), nil
				})}})
				require.NoError(t, inner)
				return o
			}
			for range 3 {
				require.NoError(t, deep(3).err)
			}
			require.Zero(t, m.Stats().Running)
		})
	}
}

// TestGoexit: a caller whose goroutine ends in the middle of a call, as a test
// that fails in a callback does, leaves nothing behind and holds up nobody.
func TestGoexit(t *testing.T) {
	for name, g := range map[string]guest{"while it starts up": speaker, "after it": listener} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			m := compile(t, h, g.wasm())
			require.NoError(t, do(context.Background(), h, m, host.Call{}).err)
			before := h.Stats()
			for range 3 {
				done := make(chan struct{})
				go func() {
					defer close(done)
					do(context.Background(), h, m, host.Call{Traits: host.Traits{Serial: true}, Observers: host.Observers{Stdout: writerFunc(func([]byte) (int, error) {
						runtime.Goexit()
						return 0, nil
					})}})
				}()
				<-done
				require.LessOrEqual(t, h.Stats().Memory, before.Memory)
				require.Zero(t, m.Stats().Idle, "the instance never returned")
				require.NoError(t, do(context.Background(), h, m, host.Call{Traits: host.Traits{Serial: true}}).err)
			}
			require.Zero(t, m.Stats().Running+m.Stats().Waiting)
			require.Equal(t, before.Memory, h.Stats().Memory)
		})
	}
}

// TestFirstCallsDoTheSame: of many calls that come at once, some start the plugin up,
// and the others continue from there.
func TestFirstCallsDoTheSame(t *testing.T) {
	h := newHost(t, nil)
	m := compile(t, h, guest{
		initialize: seq(store(512, i32(5)), times(200_000, code{byte(wasmbin.OpNop)})), invoke: seq(tell(load(i32(512))), i32(0)),
	}.wasm())
	outcomes := make([]outcome, 50)
	var wg sync.WaitGroup
	for i := range outcomes {
		wg.Go(func() { outcomes[i] = do(context.Background(), h, m, host.Call{}) })
	}
	wg.Wait()
	for _, o := range outcomes {
		require.NoError(t, o.err)
		require.Equal(t, []int32{5}, o.codes())
		require.Equal(t, outcomes[0].Usage.Fuel, o.Usage.Fuel)
	}
	started := m.Stats().Started
	require.NotZero(t, started)
	require.NoError(t, do(context.Background(), h, m, host.Call{}).err)
	require.Equal(t, started, m.Stats().Started)
	require.Equal(t, int64(len(outcomes)+1), started+m.Stats().Restored+m.Stats().Warm)
}

// TestStartingUpEndsWithItsCall, and leaves nothing.
func TestStartingUpEndsWithItsCall(t *testing.T) {
	spin := guest{initialize: forever(), invoke: i32(0)}.wasm()
	short := host.Call{Policy: host.Policy{Timeout: time.Millisecond}}
	t.Run("call", func(t *testing.T) {
		h := newHost(t, nil)
		m := compile(t, h, spin)
		for i := range 100 { // views, so that it would take minutes
			short.Policy.Memory = int64(20+i) * page
			require.ErrorIs(t, do(context.Background(), h, m, short).err, context.DeadlineExceeded)
		}
		for late := time.Now().Add(2 * time.Minute); h.Stats().Memory > 0; {
			require.True(t, time.Now().Before(late))
		}
	})
	t.Run("module", func(t *testing.T) {
		h := newHost(t, nil)
		m := compile(t, h, spin)
		require.Error(t, do(context.Background(), h, m, short).err)
		require.NoError(t, m.Close(context.Background()))
		require.Zero(t, h.Stats().Memory)
	})
}

// TestCallsThatGaveUp have left nothing behind, however long an instance takes to
// make.
func TestCallsThatGaveUp(t *testing.T) {
	const pages = 64
	slow := guest{change: func(m *wasmbin.Module) { // to be made
		m.Memories[0].Min = pages
		for range 10_000 {
			m.Globals = append(m.Globals, wasmbin.Global{
				GlobalType: wasmbin.GlobalType{Type: wasmbin.I32, Mutable: true}, Init: append(i32(0), byte(wasmbin.OpEnd)),
			})
		}
	}}
	h := hostWith(t, host.Config{Calls: 1})
	m := compile(t, h, slow.wasm())
	before := runtime.NumGoroutine()
	for range 30 {
		do(context.Background(), h, m, host.Call{Policy: host.Policy{Timeout: time.Millisecond}})
		requireGoroutines(t, before+10)
	}
	require.Less(t, h.Stats().MemoryPeak, int64(2*pages*page))
}

// TestFuelIsTheSameWithoutASnapshot: a call that finds no room for one, and so
// starts up itself, does the same for the same fuel. A plugin that describes
// itself before is another one then.
func TestFuelIsTheSameWithoutASnapshot(t *testing.T) {
	wasm := guest{
		describe: seq(store(512, i32(1)), i32(0)), initialize: store(600, i32(1)),
		invoke: seq(when(load(i32(512)), times(1000)), tell(load(i32(512))), i32(0)),
		change: func(m *wasmbin.Module) {
			m.Memories[0].Min = 4
			m.Data = append(m.Data, wasmbin.Data{Offset: append(i32(4*page-4), byte(wasmbin.OpEnd)), Init: []byte("last")})
		},
	}.wasm()
	h := newHost(t, nil)
	alone := do(context.Background(), h, compile(t, h, wasm), host.Call{})
	require.NoError(t, alone.err)

	h = hostWith(t, host.Config{Memory: 8 * page})
	m, hog := compile(t, h, wasm), held
	hog.change = func(m *wasmbin.Module) { m.Memories[0].Min = 3 }
	first := hold(t, h, compile(t, h, hog.wasm()), host.Call{})
	<-first.in
	beside := do(context.Background(), h, m, host.Call{})
	require.NoError(t, beside.err)
	require.EqualValues(t, 1, m.Stats().Started)
	first.release(t)
	require.Equal(t, []int32{0}, alone.codes())
	require.Equal(t, alone.codes(), beside.codes())
	require.Equal(t, alone.Usage.Fuel, beside.Usage.Fuel)
}

// TestStartingUpNeedsFuel: a call that cannot pay for starting up says nothing
// about one that can.
func TestStartingUpNeedsFuel(t *testing.T) {
	h := newHost(t, nil)
	m := compile(t, h, guest{initialize: times(10_000, drop(load(i32(0)))), invoke: i32(0)}.wasm())
	for _, budget := range []int64{100, 1000, 100} {
		o := do(context.Background(), h, m, host.Call{Policy: host.Policy{Fuel: budget}})
		require.ErrorIs(t, o.err, host.ErrFuel)
		require.Equal(t, budget, o.Usage.Fuel)
	}
	first := do(context.Background(), h, m, host.Call{})
	require.NoError(t, first.err)
	o := do(context.Background(), h, m, host.Call{Policy: host.Policy{Fuel: 1000}})
	require.ErrorIs(t, o.err, host.ErrFuel)
	require.Equal(t, int64(1000), o.Usage.Fuel)
	require.Equal(t, first.Usage.Fuel, do(context.Background(), h, m, host.Call{}).Usage.Fuel)
	require.Equal(t, int64(4), m.Stats().Started)
}

// TestManyViews: however many kinds of policies there are, a module keeps few
// snapshots.
func TestManyViews(t *testing.T) {
	h := newHost(t, nil)
	m := compile(t, h, guest{initialize: drop(wasi(fnEnv, 512, 516)), invoke: seq(tell(load(i32(516))), i32(0)),
		change: func(m *wasmbin.Module) { m.Memories[0].Min, m.Data = 4, append(m.Data, largeData(200<<10)) }}.wasm())
	files := len(openFiles())
	for range 2 {
		for i := range 40 {
			name := make([]byte, i+1)
			for j := range name {
				name[j] = 'A'
			}
			o := do(context.Background(), h, m, host.Call{Policy: host.Policy{Grant: host.Grant{Env: map[string]string{string(name): ""}}}})
			require.NoError(t, o.err)
			require.Equal(t, []int32{int32(i + 3)}, o.codes())
		}
	}
	require.LessOrEqual(t, len(openFiles()), files+16)
	require.LessOrEqual(t, h.Stats().Idle, 8)
	require.NoError(t, m.Close(context.Background()))
	require.Zero(t, h.Stats().Memory)
	require.LessOrEqual(t, len(openFiles()), files)
}

// TestStartingUpWithoutItsData: a large part of the data is cleared while a plugin
// starts up, and stays so for each call.
func TestStartingUpWithoutItsData(t *testing.T) {
	for way, change := range map[string]func(*host.Host){
		"mapped": func(*host.Host) {}, "blind": (*host.Host).Blind, "heap": (*host.Host).OnHeap,
	} {
		for _, left := range []int64{0, 160 << 10, 399 << 10} {
			h := newHost(t, nil)
			change(h)
			m := compile(t, h, guest{
				initialize: seq(i32(left), i32(0), i32(400<<10-left), code{0xfc, 11, 0}),
				invoke: seq(tell(load(i32(150<<10))), tell(load(i32(300<<10))),
					i32(0), i32(7), i32(8*page), code{0xfc, 11, 0}, i32(0)),
				change: func(m *wasmbin.Module) { m.Memories[0].Min, m.Data = 8, append(m.Data, largeData(300<<10)) },
			}.wasm())
			var first outcome
			for i := range 4 {
				o := do(context.Background(), h, m, host.Call{})
				require.NoError(t, o.err)
				if i == 0 {
					first = o
				}
				require.Equal(t, first.codes(), o.codes(), "%s, %d left, call %d", way, left, i)
			}
			require.Equal(t, left > 0, first.codes()[0] != 0)
			require.Equal(t, left > 300<<10, first.codes()[1] != 0)
		}
	}
}
