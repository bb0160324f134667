package host_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// hostWith returns a host that ends with the test. What it keeps warm stays so,
// however long the test takes, unless cfg says otherwise.
func hostWith(t testing.TB, cfg host.Config) *host.Host {
	t.Helper()
	cfg.WarmFor = cmp.Or(cfg.WarmFor, time.Hour)
	h, err := host.New(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
	return h
}

// held reports progress, which its caller can hold it in.
var held = guest{invoke: seq(drop(progress(0, 1, 0, 0)), i32(0))}

// holder is a call that waits in the middle until it is let go.
type holder struct {
	in   chan struct{} // closed when it is there
	let  func()        // lets it go
	done chan outcome
}

// hold makes a call that is let go when the test ends, if it was not before: the
// host, which was made earlier and is closed later, waits for it.
func hold(t testing.TB, h *host.Host, m *host.Module, req host.Call) *holder {
	out := make(chan struct{})
	o := &holder{make(chan struct{}), sync.OnceFunc(func() { close(out) }), make(chan outcome, 1)}
	t.Cleanup(o.let)
	in := o.in
	req.Progress = func(host.Progress) { close(in); <-out }
	go func() { o.done <- do(context.Background(), h, m, req) }()
	return o
}

func (o *holder) release(t *testing.T) {
	t.Helper()
	o.let()
	require.NoError(t, (<-o.done).err)
}

// untilWaiting waits until that many calls of the module wait. The time is for
// those that never do.
func untilWaiting(t *testing.T, m *host.Module, n int) {
	t.Helper()
	for late := time.Now().Add(2 * time.Minute); m.Stats().Waiting != n; {
		require.True(t, time.Now().Before(late), "%d wait", m.Stats().Waiting)
	}
}

// TestCallsWaitInLine: calls beyond the cap wait in the order they came.
func TestCallsWaitInLine(t *testing.T) {
	h := hostWith(t, host.Config{Calls: 1})
	m := compile(t, h, held.wasm())
	first := hold(t, h, m, host.Call{})
	<-first.in
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			do(context.Background(), h, m, host.Call{Observers: host.Observers{Progress: func(host.Progress) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			}}})
		})
		untilWaiting(t, m, i+1)
	}
	require.Equal(t, 1, m.Stats().Running)
	first.release(t)
	wg.Wait()
	require.Equal(t, []int{0, 1, 2, 3, 4}, order)
	require.Zero(t, m.Stats().Running)
}

// TestWaitingEnds: a call that waits ends when its time is up, and when its
// caller goes.
func TestWaitingEnds(t *testing.T) {
	h := hostWith(t, host.Config{Calls: 1})
	m := compile(t, h, held.wasm())
	first := hold(t, h, m, host.Call{})
	<-first.in
	late := do(context.Background(), h, m, host.Call{Policy: host.Policy{Timeout: time.Millisecond}})
	require.ErrorIs(t, late.err, context.DeadlineExceeded)
	require.Equal(t, abi.LimitTime, late.Limit)

	gone := errors.New("the caller went away")
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan outcome)
	go func() { done <- do(ctx, h, m, host.Call{}) }()
	untilWaiting(t, m, 1)
	cancel(gone)
	require.ErrorIs(t, (<-done).err, gone)
	first.release(t)
	require.NoError(t, do(context.Background(), h, m, host.Call{}).err, "the place is free again")
}

// TestSerialCallsTakeTurns: within a session, and only there.
func TestSerialCallsTakeTurns(t *testing.T) {
	h := newHost(t, nil)
	m := compile(t, h, held.wasm())
	first := hold(t, h, m, host.Call{Traits: host.Traits{Serial: true}, Session: "a"})
	<-first.in
	second := hold(t, h, m, host.Call{Traits: host.Traits{Serial: true}, Session: "a"})
	untilWaiting(t, m, 1)
	other := hold(t, h, m, host.Call{Traits: host.Traits{Serial: true}, Session: "b"})
	<-other.in
	parallel := hold(t, h, m, host.Call{Session: "a"})
	<-parallel.in
	late := do(context.Background(), h, m, host.Call{Traits: host.Traits{Serial: true}, Session: "a", Policy: host.Policy{Timeout: time.Millisecond}})
	require.ErrorIs(t, late.err, context.DeadlineExceeded)
	select {
	case <-second.in:
		require.Fail(t, "two serial calls of a session at a time")
	default:
	}
	first.release(t)
	<-second.in
	for _, c := range []*holder{second, other, parallel} {
		c.release(t)
	}
}

// TestMemoryCeiling: what all calls hold together is bounded. A call beyond it
// is refused, one that grows beyond it is ended, and both say so.
func TestMemoryCeiling(t *testing.T) {
	h := hostWith(t, host.Config{Memory: 10 * page})
	big := held
	big.change = func(m *wasmbin.Module) { m.Memories[0].Min = 6 }
	m := compile(t, h, big.wasm())
	first := hold(t, h, m, host.Call{})
	<-first.in
	require.Equal(t, int64(6*page), h.Stats().Memory)

	refused := do(context.Background(), h, m, host.Call{})
	require.ErrorIs(t, refused.err, host.ErrMemory)
	require.ErrorContains(t, refused.err, "all calls may hold 655360 bytes together, and 393216 more are needed: retry when others have ended")
	require.Equal(t, abi.LimitReached, refused.Kind)
	require.Equal(t, abi.LimitMemory, refused.Limit)

	growing := compile(t, h, guest{invoke: seq(tell(grow(3)), tell(grow(1)), i32(0))}.wasm())
	grown := do(context.Background(), h, growing, host.Call{})
	require.Equal(t, []int32{1}, grown.codes())
	require.ErrorIs(t, grown.err, host.ErrHostMemory)
	require.Equal(t, abi.LimitMemory, grown.Limit)
	require.ErrorContains(t, grown.err, "retry when")
	require.Equal(t, int64(4*page), grown.Usage.MemoryPeak)

	first.release(t)
	require.Equal(t, int64(10*page), h.Stats().MemoryPeak)
	require.Equal(t, int64(6*page), m.Stats().MemoryPeak)
	require.NoError(t, do(context.Background(), h, m, host.Call{Observers: host.Observers{Progress: func(host.Progress) {}}}).err)
}

// TestMemoryShares: one client takes all the memory that it can, and the calls of another
// one still run. The error does not say what others hold.
func TestMemoryShares(t *testing.T) {
	h := hostWith(t, host.Config{Memory: 8 * page, Shared: true})
	two := held
	two.change = func(m *wasmbin.Module) { m.Memories[0].Min = 2 }
	m := compile(t, h, two.wasm())
	greedy := compile(t, h, guest{invoke: seq(tell(grow(1)), i32(0))}.wasm())
	var all []*holder
	for i := range 3 {
		all = append(all, hold(t, h, m, host.Call{Session: fmt.Sprint("ana/", i)}))
		<-all[i].in
	}

	refused := do(t.Context(), h, m, host.Call{Session: "ana/more"})
	require.ErrorIs(t, refused.err, host.ErrHostMemory)
	require.Equal(t, abi.LimitMemory, refused.Limit)
	require.Equal(t, "out of memory on this host: the calls of one client may hold 393216 bytes together, and 131072 more are needed: retry when others of yours have ended", refused.Error)
	require.NoError(t, do(t.Context(), h, greedy, host.Call{Session: "bo/main"}).err)

	all[0].release(t)
	grown := do(t.Context(), h, greedy, host.Call{Session: "ana/more"})
	require.NoError(t, grown.err, "what is kept warm is not hers")
	all[0] = hold(t, h, m, host.Call{Session: "ana/again"})
	<-all[0].in
	require.ErrorIs(t, do(t.Context(), h, greedy, host.Call{Session: "ana/more"}).err, host.ErrHostMemory, "a warm instance counts")
	other := hold(t, h, m, host.Call{Session: "bo/main"})
	<-other.in
	refused = do(t.Context(), h, m, host.Call{Session: "cy/main"})
	require.Equal(t, "out of memory on this host: all calls may hold 524288 bytes together, and 131072 more are needed: retry when others have ended", refused.Error)
	for _, one := range append(all, other) {
		one.release(t)
	}
}

// TestWarmInstancesMakeRoom: memory that only waits is given to those that need
// it.
func TestWarmInstancesMakeRoom(t *testing.T) {
	h := hostWith(t, host.Config{Memory: 10 * page})
	warm := compile(t, h, guest{invoke: i32(0), change: func(m *wasmbin.Module) { m.Memories[0].Min = 6 }}.wasm())
	for range 3 {
		require.NoError(t, do(context.Background(), h, warm, host.Call{}).err)
	}
	require.Equal(t, 1, h.Stats().Idle)
	other := compile(t, h, guest{invoke: seq(drop(grow(6)), i32(0))}.wasm())
	require.NoError(t, do(context.Background(), h, other, host.Call{}).err)
	require.Zero(t, warm.Stats().Idle)
	require.Zero(t, warm.Stats().Memory)

	require.NoError(t, do(context.Background(), h, warm, host.Call{}).err)
	require.NoError(t, do(context.Background(), h, warm, host.Call{}).err)
	greedy := compile(t, h, guest{invoke: seq(tell(grow(20)), i32(0))}.wasm())
	require.ErrorIs(t, do(context.Background(), h, greedy, host.Call{}).err, host.ErrHostMemory)
	require.NoError(t, do(context.Background(), h, warm, host.Call{}).err)
}

// TestGrowthBesideOthers: a growth that is refused because of others ends the
// call, whatever the guest makes of a refusal, so that no call says another thing
// than it does when it is alone.
func TestGrowthBesideOthers(t *testing.T) {
	for name, g := range map[string]guest{
		"a success":      {invoke: seq(tell(grow(4)), i32(0))},
		"a tool error":   {invoke: seq(tell(grow(4)), i32(1))},
		"a command":      {command: tell(grow(4))},
		"an exit":        {command: seq(tell(grow(4)), i32(0), call(fnExit))},
		"a loop":         {invoke: seq(tell(grow(4)), when(op(wasmbin.OpI32Eq, code{0x3f, 0}, i32(1)), forever()), i32(0))},
		"in its startup": {initialize: drop(grow(4)), invoke: seq(tell(code{0x3f, 0}), i32(0))},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostWith(t, host.Config{Memory: 8 * page})
			m, hog := compile(t, h, g.wasm()), held
			hog.change = func(m *wasmbin.Module) { m.Memories[0].Min = 4 }
			first := hold(t, h, compile(t, h, hog.wasm()), host.Call{})
			<-first.in
			beside := do(context.Background(), h, m, host.Call{})
			require.ErrorIs(t, beside.err, host.ErrHostMemory)
			require.Equal(t, abi.LimitMemory, beside.Limit)
			require.Empty(t, beside.codes())
			first.release(t)
			require.NotErrorIs(t, do(context.Background(), h, m, host.Call{}).err, host.ErrHostMemory, "alone")
		})
	}
}

// TestWhatIsGivenUpIsWaitedFor: memory that is being given up is not missing for
// a call that fits without it.
func TestWhatIsGivenUpIsWaitedFor(t *testing.T) {
	big := guest{invoke: i32(0), change: func(m *wasmbin.Module) { m.Memories[0].Min = 6 }}
	for name, giveUp := range map[string]func(*host.Host, *host.Module){
		"its time is up": func(h *host.Host, _ *host.Module) { h.Expire() },
		"its module is closed": func(_ *host.Host, m *host.Module) {
			if err := m.Close(context.Background()); err != nil {
				panic(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostWith(t, host.Config{Memory: 10 * page})
			old, other := compile(t, h, big.wasm()), compile(t, h, guest{invoke: big.invoke, data: "another", change: big.change}.wasm())
			for range 2 {
				require.NoError(t, do(context.Background(), h, old, host.Call{}).err)
			}
			require.Equal(t, 1, old.Stats().Idle)
			begun, goOn := make(chan struct{}), make(chan struct{})
			old.OnDiscard(func() { close(begun); <-goOn })
			var wg sync.WaitGroup
			wg.Go(func() { giveUp(h, old) })
			<-begun
			var o outcome
			done := make(chan struct{})
			wg.Go(func() {
				defer close(done)
				o = do(context.Background(), h, other, host.Call{})
			})
			select {
			case <-done: // it did not wait
			case <-time.After(20 * time.Millisecond):
			}
			close(goOn)
			wg.Wait()
			require.NoError(t, o.err)
		})
	}
}

// largeData fills a memory with so many bytes.
func largeData(n int) wasmbin.Data {
	return wasmbin.Data{Offset: append(i32(2*dataAt), byte(wasmbin.OpEnd)), Init: bytes.Repeat([]byte("x"), n)}
}

// large is a plugin with nine pages of memory, of which four hold data.
var large = guest{initialize: store(512, i32(5)), invoke: seq(tell(load(i32(512))), i32(0)), change: func(m *wasmbin.Module) {
	m.Memories[0].Min = 9
	m.Data = append(m.Data, largeData(4*page-2*dataAt))
}}

// TestImagesArePaidFor: what instances start from is memory of the host too.
func TestImagesArePaidFor(t *testing.T) {
	h := hostWith(t, host.Config{Memory: 30 * page})
	m := compile(t, h, large.wasm())
	require.Equal(t, int64(4*page), h.Stats().Memory)
	for range 3 {
		require.NoError(t, do(context.Background(), h, m, host.Call{}).err)
		require.Equal(t, int64(4+4+9)*page, h.Stats().Memory)
	}
	require.Equal(t, int64(2), m.Stats().Warm)

	second := compile(t, h, large.wasm()) // 17 and 4 are used; it needs 4 and 9
	require.NoError(t, do(context.Background(), h, second, host.Call{}).err)
	require.Zero(t, m.Stats().Idle, "given up")
	require.NoError(t, do(context.Background(), h, m, host.Call{}).err)
	require.LessOrEqual(t, h.Stats().MemoryPeak, int64(30*page))

	for range 3 {
		compile(t, h, large.wasm())
	}
	o := do(context.Background(), h, m, host.Call{})
	require.NoError(t, o.err, "with no room for a snapshot")
	require.Equal(t, []int32{5}, o.codes())
	require.Equal(t, int64(2), m.Stats().Started, "it and the first one")
	for range 2 {
		compile(t, h, large.wasm())
	}
	_, err := h.Compile(context.Background(), large.wasm())
	require.ErrorIs(t, err, host.ErrMemory)
	require.ErrorIs(t, do(context.Background(), h, m, host.Call{}).err, host.ErrMemory)

	for _, m := range []*host.Module{m, second} {
		require.NoError(t, m.Close(context.Background()))
		require.Zero(t, m.Stats().Memory)
	}
	require.Equal(t, int64(5*4*page), h.Stats().Memory)
}

// TestRoomIsMadeForAll: calls that fit all together are not refused for what
// only waits to be given up.
func TestRoomIsMadeForAll(t *testing.T) {
	const calls, pages = 32, 2
	h := hostWith(t, host.Config{TotalCalls: calls, Memory: calls * pages * page})
	var modules []*host.Module
	for range 20 {
		modules = append(modules, compile(t, h, guest{
			invoke: seq(times(2000, code{byte(wasmbin.OpNop)}), i32(0)), change: func(m *wasmbin.Module) { m.Memories[0].Min = pages },
		}.wasm()))
	}
	var wg sync.WaitGroup
	for i := range 3000 {
		wg.Go(func() {
			if o := do(context.Background(), h, modules[i%len(modules)], host.Call{}); o.err != nil {
				t.Error(o.err)
			}
		})
	}
	wg.Wait()
}

// TestLargeCacheEntry: an entry that is larger than any this host would write is
// removed and not read.
func TestLargeCacheEntry(t *testing.T) {
	dir := t.TempDir()
	compile(t, hostWith(t, host.Config{CacheDir: dir}), held.wasm())
	entries := func() []string {
		names, err := filepath.Glob(filepath.Join(dir, "code", "*", "module-*"))
		require.NoError(t, err)
		return names
	}
	require.Len(t, entries(), 1)
	require.NoError(t, os.Truncate(entries()[0], 1<<30))
	var before, after runtime.MemStats
	h := hostWith(t, host.Config{CacheDir: dir})
	runtime.ReadMemStats(&before)
	m := compile(t, h, held.wasm())
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20))
	require.NoError(t, do(context.Background(), h, m, host.Call{}).err)
	require.Len(t, entries(), 1)
	info, err := os.Stat(entries()[0])
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(1<<20))
}

// TestWarmInstancesEnd: there is a cap, an age, and an end with the module.
func TestWarmInstancesEnd(t *testing.T) {
	three := func(h *host.Host) *host.Module {
		m := compile(t, h, held.wasm())
		require.NoError(t, do(context.Background(), h, m, host.Call{}).err)
		var all []*holder
		for range 3 {
			o := hold(t, h, m, host.Call{})
			<-o.in
			all = append(all, o)
		}
		for _, o := range all {
			o.release(t)
		}
		return m
	}
	t.Run("cap", func(t *testing.T) {
		require.Equal(t, 2, three(hostWith(t, host.Config{Warm: 2})).Stats().Idle)
		require.Equal(t, 0, three(hostWith(t, host.Config{Warm: -1})).Stats().Idle)
		require.Equal(t, 3, three(hostWith(t, host.Config{})).Stats().Idle)
	})
	t.Run("age", func(t *testing.T) {
		m := three(hostWith(t, host.Config{WarmFor: time.Millisecond}))
		for late := time.Now().Add(2 * time.Minute); m.Stats().Idle > 0 || m.Stats().Memory > 0; {
			require.True(t, time.Now().Before(late))
		}
	})
	t.Run("module", func(t *testing.T) {
		h := hostWith(t, host.Config{})
		m := three(h)
		require.NoError(t, m.Close(context.Background()))
		require.Zero(t, h.Stats().Idle)
		require.Zero(t, h.Stats().Memory)
	})
}
