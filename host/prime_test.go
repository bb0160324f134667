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
			held, release, done := make(chan struct{}, 2), make(chan struct{}), make(chan outcome, 1)
			go func() {
				done <- do(context.Background(), h, m, host.Call{Stdout: writerFunc(func(p []byte) (int, error) {
					held <- struct{}{}
					<-release
					return len(p), nil
				})})
			}()
			<-held
			for range 3 {
				require.NoError(t, do(context.Background(), h, m, host.Call{}).err)
			}
			close(release)
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
				o := do(context.Background(), h, m, host.Call{Stdout: writerFunc(func(p []byte) (int, error) {
					if level > 0 && inner == nil {
						inner = deep(level - 1).err
					}
					return len(p), nil
				})})
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
					do(context.Background(), h, m, host.Call{Serial: true, Stdout: writerFunc(func([]byte) (int, error) {
						runtime.Goexit()
						return 0, nil
					})})
				}()
				<-done
				require.LessOrEqual(t, h.Stats().Memory, before.Memory)
				require.Zero(t, m.Stats().Idle, "the instance never returned")
				require.NoError(t, do(context.Background(), h, m, host.Call{Serial: true}).err)
			}
			require.Zero(t, m.Stats().Running+m.Stats().Waiting)
			require.Equal(t, before.Memory, h.Stats().Memory)
		})
	}
}

// TestFirstCallsShareASnapshot: of many calls that come at once, none starts the
// plugin up.
func TestFirstCallsShareASnapshot(t *testing.T) {
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
	require.Zero(t, m.Stats().Started)
}

// TestStartingUpThatNobodyWaitsFor: taking a snapshot ends with the last call
// that waits for it, and closing a module or a host does not wait for it.
func TestStartingUpThatNobodyWaitsFor(t *testing.T) {
	spin := guest{initialize: forever(), invoke: i32(0)}.wasm()
	short := host.Call{Policy: host.Policy{Timeout: time.Millisecond}}
	t.Run("call", func(t *testing.T) {
		h := newHost(t, nil)
		m := compile(t, h, spin)
		for i := range 100 { // views, so that it would take minutes
			short.Policy.Memory = int64(20+i) * page
			require.ErrorIs(t, do(context.Background(), h, m, short).err, context.DeadlineExceeded)
		}
		for late := time.Now().Add(time.Minute); h.Stats().Memory > 0; {
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
	require.Equal(t, int64(1), m.Stats().Restored)
	o := do(context.Background(), h, m, host.Call{Policy: host.Policy{Fuel: 1000}})
	require.ErrorIs(t, o.err, host.ErrFuel)
	require.Equal(t, int64(1000), o.Usage.Fuel)
	require.Equal(t, first.Usage.Fuel, do(context.Background(), h, m, host.Call{}).Usage.Fuel)
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
			o := do(context.Background(), h, m, host.Call{Policy: host.Policy{Env: map[string]string{string(name): ""}}})
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
