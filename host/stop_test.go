package host_test

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// signal is a guest that reports progress once and then runs forever.
var signal = guest{invoke: seq(drop(progress(0, -1, 0, 0)), forever(), i32(0))}

func TestCancel(t *testing.T) {
	because := errors.New("the user changed their mind")
	for name, c := range map[string]struct {
		cancel func(context.Context, func(context.Context)) // calls with a context that ends
		is     []error
		kind   abi.Kind
		limit  abi.Limit
		text   string
	}{
		"canceled": {func(ctx context.Context, call func(context.Context)) {
			ctx, cancel := context.WithCancel(ctx)
			call(context.WithValue(ctx, began{}, cancel))
		}, []error{context.Canceled}, abi.CanceledKind, "", "context canceled"},
		"canceled with a cause": {func(ctx context.Context, call func(context.Context)) {
			ctx, cancel := context.WithCancelCause(ctx)
			call(context.WithValue(ctx, began{}, context.CancelFunc(func() { cancel(because) })))
		}, []error{context.Canceled, because}, abi.CanceledKind, "", because.Error()},
		"the caller's deadline": {func(ctx context.Context, call func(context.Context)) {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancel()
			call(ctx)
		}, []error{context.DeadlineExceeded}, abi.LimitReached, abi.LimitTime, "context deadline exceeded"},
		"the caller's deadline with a cause": {func(ctx context.Context, call func(context.Context)) {
			ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Millisecond, because)
			defer cancel()
			call(ctx)
		}, []error{context.DeadlineExceeded, because}, abi.LimitReached, abi.LimitTime, because.Error()},
		"before it began": {func(ctx context.Context, call func(context.Context)) {
			ctx, cancel := context.WithCancelCause(ctx)
			cancel(because)
			call(ctx)
		}, []error{context.Canceled, because}, abi.CanceledKind, "", because.Error()},
		"too late before it began": {func(ctx context.Context, call func(context.Context)) {
			ctx, cancel := context.WithTimeout(ctx, -1)
			defer cancel()
			call(ctx)
		}, []error{context.DeadlineExceeded}, abi.LimitReached, abi.LimitTime, "context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			m := compile(t, h, signal.wasm())
			c.cancel(context.Background(), func(ctx context.Context) {
				cancel, _ := ctx.Value(began{}).(context.CancelFunc)
				o := do(ctx, h, m, host.Call{Policy: host.Policy{Fuel: host.MaxFuel}, Observers: host.Observers{Progress: func(host.Progress) {
					if cancel != nil {
						go cancel()
					}
				}}})
				for _, want := range c.is {
					require.ErrorIs(t, o.err, want)
				}
				var callErr *host.CallError
				require.ErrorAs(t, o.err, &callErr)
				require.EqualError(t, o.err, "guest_tool: "+c.text)
				require.Equal(t, c.kind, o.Kind)
				require.Equal(t, c.limit, o.Limit)
				require.Equal(t, c.text, o.Error)
			})
		})
	}
}

// began is the key of what to do once the guest runs.
type began struct{}

// A tool that listens hears of a stop from each function, and what it still
// writes counts.
func TestStopping(t *testing.T) {
	stop := make(chan struct{})
	close(stop)
	o := run(t, guest{
		data: `{"type":"text","text":"x"}sleep{"ms":1000000000000}`,
		invoke: seq(
			tell(write(abi.StreamOutput, 0, 0)), tell(write(abi.StreamResult, 0, 0)), tell(write(abi.StreamInfo, 0, 0)),
			tell(write(abi.StreamContent, dataAt, 26)), tell(progress(1, 2, 0, 0)),
			tell(capability(dataAt+26, 5, dataAt+31, 20)),
			store(0, i32('7')), drop(write(abi.StreamResult, 0, 1)),
			tell(read(abi.FieldResponse, 512, 512)), i32(0),
		),
	}, host.Call{Stopping: stop, Policy: host.Policy{Grant: host.Grant{Clock: true}}})
	require.NoError(t, o.err)
	require.Equal(t, []int32{1, 1, 1, 1, 1, abi.CallCanceled, int32(len(`{"code":"canceled","message":"the call is being stopped"}`))}, o.codes())
	require.JSONEq(t, `7`, string(o.Value))
	require.Len(t, o.Content, 1)
}

// TestStopDuringRandom: a call for many random bytes ends soon after it is stopped.
func TestStopDuringRandom(t *testing.T) {
	const size = 64 << 20
	source := rand.Reader
	t.Cleanup(func() { rand.Reader = source })
	ctx, stop := context.WithCancel(context.Background())
	read := 0
	rand.Reader = readerFunc(func(p []byte) (int, error) {
		if read += len(p); read > 1<<20 {
			stop()
		}
		return len(p), nil
	})

	wasm := guest{invoke: seq(drop(grow(size/page)), drop(wasi(fnRandom, 0, size)), i32(0))}.wasm()
	h := newHost(t, nil)
	m := compile(t, h, wasm)
	policy := host.Policy{Memory: 2 * size, Grant: host.Grant{Random: true}}
	o := do(ctx, h, m, host.Call{Policy: policy})
	require.ErrorIs(t, o.err, context.Canceled)
	require.Less(t, read, 2<<20)

	read = -size
	o = do(context.Background(), h, m, host.Call{Policy: policy})
	require.NoError(t, o.err)
	require.Zero(t, read, "all of them")
	require.InDelta(t, size/64+size/page*1024, o.Usage.Fuel, 500, "for the bytes, and for the pages")
}

// readerFunc is an io.Reader.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A stop wakes a tool that sleeps, and so does the end of its time. Nothing here
// runs in real time.
func TestSleepIsCutShort(t *testing.T) {
	sleeper := guest{
		data:   `sleep{"ms":1000000000000}`,
		invoke: seq(drop(progress(0, -1, 0, 0)), tell(capability(dataAt, 5, dataAt+5, 20)), i32(0)),
	}
	t.Run("by a stop", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			stop := make(chan struct{})
			begin := time.Now()
			o := run(t, sleeper, host.Call{
				Stopping: stop, Policy: host.Policy{Grant: host.Grant{Clock: true}, Timeout: 1000 * time.Hour},
				Observers: host.Observers{Progress: func(host.Progress) { time.AfterFunc(time.Hour, func() { close(stop) }) }},
			})
			require.NoError(t, o.err)
			require.Equal(t, []int32{abi.CallCanceled}, o.codes())
			require.Equal(t, time.Hour, time.Since(begin))
		})
	})
	t.Run("by its time limit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			o := run(t, sleeper, host.Call{Policy: host.Policy{Grant: host.Grant{Clock: true}, Timeout: time.Minute}})
			require.ErrorIs(t, o.err, context.DeadlineExceeded)
			require.Empty(t, o.codes())
			require.Equal(t, time.Minute, time.Since(begin))
			require.Equal(t, time.Minute, o.Usage.Wall)
		})
	})
	t.Run("by nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			o := run(t, guest{data: `sleep{"ms":3600000}`, invoke: seq(tell(capability(dataAt, 5, dataAt+5, 14)), i32(0))},
				host.Call{Policy: host.Policy{Grant: host.Grant{Clock: true}, Timeout: 2 * time.Hour}})
			require.NoError(t, o.err)
			require.Equal(t, []int32{2}, o.codes(), "the length of {}")
			require.Equal(t, time.Hour, time.Since(begin))
		})
	})
}

func TestClose(t *testing.T) {
	h, err := host.New(t.Context(), host.Config{})
	require.NoError(t, err)
	m := compile(t, h, signal.wasm())
	const calls = 8
	running := make(chan struct{}, calls)
	ends := make(chan outcome, calls)
	for range calls {
		go func() {
			ends <- do(context.Background(), h, m, host.Call{
				Policy: host.Policy{Fuel: host.MaxFuel}, Observers: host.Observers{Progress: func(host.Progress) { running <- struct{}{} }},
			})
		}()
	}
	for range calls {
		<-running
	}
	ctx, cancel := context.WithCancel(context.Background())
	closed := make(chan error)
	go func() { closed <- h.Close(ctx) }()
	select { // it waits for the calls as long as its context allows
	case <-closed:
		require.Fail(t, "closed under running calls")
	case <-ends:
		require.Fail(t, "a call was ended early")
	default:
	}
	cancel()
	require.NoError(t, <-closed)
	for range calls {
		o := <-ends
		require.EqualError(t, o.err, "guest_tool: the host is closed")
		require.ErrorIs(t, o.err, host.ErrClosed)
		require.ErrorIs(t, o.err, context.Canceled)
		require.Equal(t, abi.CanceledKind, o.Kind)
		require.Positive(t, o.Usage.Fuel)
	}
	requireClosed(t, h, m)
	require.NoError(t, h.Close(context.Background()), "twice")
}

// TestCloseAtTheSameTime: a host and its module may be closed more than once, at
// the same time, and while a snapshot is taken that nobody waits for any more.
func TestCloseAtTheSameTime(t *testing.T) {
	dir := t.TempDir()
	wasm := guest{initialize: times(20_000, store(512, i32(1))), change: func(m *wasmbin.Module) {
		m.Memories[0].Min = 8
		m.Data = append(m.Data, largeData(200<<10))
	}}.wasm()
	for i := range 20 {
		h, err := host.New(context.Background(), host.Config{CacheDir: dir})
		require.NoError(t, err)
		m := compile(t, h, wasm)
		do(context.Background(), h, m, host.Call{Policy: host.Policy{Timeout: time.Duration(i) * 20 * time.Microsecond}})
		do(context.Background(), h, m, host.Call{Policy: host.Policy{Memory: 16 * page}})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := h.Close(context.Background()); err != nil {
					t.Error(err)
				}
				if n := h.Stats().Memory; n != 0 {
					t.Error(n, "bytes are left")
				}
			})
		}
		wg.Go(func() {
			if err := m.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
	}
}

func requireClosed(t *testing.T, h *host.Host, m *host.Module) {
	t.Helper()
	o := do(context.Background(), h, m, host.Call{})
	require.ErrorIs(t, o.err, host.ErrClosed)
	require.Equal(t, abi.CanceledKind, o.Kind)
	_, err := h.Compile(context.Background(), guest{}.wasm())
	require.ErrorIs(t, err, host.ErrClosed)
	_, err = h.Describe(context.Background(), guest{describe: i32(0)}.wasm())
	require.ErrorIs(t, err, host.ErrClosed)
}

func TestCloseLetsCallsFinish(t *testing.T) {
	h, err := host.New(t.Context(), host.Config{})
	require.NoError(t, err)
	m := compile(t, h, guest{invoke: seq(drop(progress(0, 1, 0, 0)), times(100_000), i32(0))}.wasm())
	closed := make(chan error, 1)
	o := do(context.Background(), h, m, host.Call{Observers: host.Observers{Progress: func(host.Progress) {
		go func() { closed <- h.Close(context.Background()) }()
	}}})
	require.NoError(t, o.err)
	require.NoError(t, <-closed)
	requireClosed(t, h, m)
}
