package host_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// untilProcessors waits until so many calls compute and so many wait for a
// processor. The time is for those that never do.
func untilProcessors(t *testing.T, h *host.Host, computing, waiting int) {
	t.Helper()
	for late := time.Now().Add(2 * time.Minute); ; {
		s := h.Stats().Processors
		if s.Computing == computing && s.Waiting == waiting {
			return
		}
		require.True(t, time.Now().Before(late), "%+v", s)
		time.Sleep(time.Millisecond)
	}
}

// TestSpinnersShareProcessors: no more guests compute than there are processors,
// direct calls get through meanwhile, and each of the others ends when it is
// stopped.
func TestSpinnersShareProcessors(t *testing.T) {
	for _, processors := range []int{1, 2} {
		const spinners = 64
		h := hostWith(t, host.Config{})
		h.Processors(processors)
		m, echoes := compile(t, h, signal.wasm()), compile(t, h, echo.wasm())
		ctx, stop := context.WithCancel(context.Background())
		ends := make(chan outcome, spinners)
		for range spinners {
			go func() {
				ends <- do(ctx, h, m, host.Call{Background: true, Policy: host.Policy{Fuel: host.MaxFuel}})
			}()
		}
		untilProcessors(t, h, processors, spinners-processors)

		for range 20 {
			o := do(context.Background(), h, echoes, host.Call{Args: []byte(`{"text":"hello"}`)})
			require.NoError(t, o.err)
			s := h.Stats()
			require.Equal(t, spinners, s.Running, "they all go on")
			require.LessOrEqual(t, s.Processors.Computing, processors)
		}
		require.Greater(t, h.Stats().Processors.Waited, int64(spinners-processors))

		stop()
		for range spinners {
			require.ErrorIs(t, (<-ends).err, context.Canceled)
		}
		require.Zero(t, h.Stats().Processors.Computing+h.Stats().Processors.Waiting)
	}
}

// onWrite is a writer that says when something is written.
type onWrite func()

func (f onWrite) Write(p []byte) (int, error) { f(); return len(p), nil }

// TestEndWhileWaiting: a call that waits for a processor ends at once when it is
// stopped or its time is over, and has computed nothing.
func TestEndWhileWaiting(t *testing.T) {
	stopped := errors.New("stopped")
	for name, c := range map[string]struct {
		timeout time.Duration
		after   time.Duration // of the stop
		is      error
		kind    abi.Kind
	}{
		"stopped":  {time.Hour, time.Second, stopped, abi.CanceledKind},
		"too late": {time.Second, time.Hour, context.DeadlineExceeded, abi.LimitReached},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := hostWith(t, host.Config{})
				m := compile(t, h, held.wasm())
				giveBack := h.TakeProcessors()
				ctx, cancel := context.WithCancelCause(context.Background())
				time.AfterFunc(c.after, func() { cancel(stopped) })

				o := do(ctx, h, m, host.Call{Background: true, Policy: host.Policy{Timeout: c.timeout}})
				require.ErrorIs(t, o.err, c.is)
				require.ErrorContains(t, o.err, "while the call waited: ")
				require.Equal(t, c.kind, o.Kind)
				require.Zero(t, o.Usage.Fuel)
				require.Equal(t, time.Second, o.Usage.Wall)
				s := h.Stats()
				require.Equal(t, host.ProcessorStats{Computing: s.Processors.Computing, Waited: 1, WaitTime: time.Second}, s.Processors)
				require.Zero(t, s.Instances)

				giveBack()
				require.NoError(t, do(context.Background(), h, m, host.Call{}).err)
				cancel(nil)
				time.Sleep(time.Hour) // the timer of the stop
			})
		})
	}
}

// TestWaitingTakesNoProcessor: guests that sleep, ask, or are held up by a writer
// or a log leave their processor to others.
func TestWaitingTakesNoProcessor(t *testing.T) {
	const long = time.Hour
	slow := func() { time.Sleep(long) }
	for name, c := range map[string]struct {
		guest guest
		call  host.Call
	}{
		"sleep": {
			guest{data: `sleep{"ms":3600000}`, invoke: seq(drop(capability(dataAt, 5, dataAt+5, 14)), i32(0))},
			host.Call{Policy: host.Policy{Grant: host.Grant{Clock: true}}},
		},
		"ask": {
			guest{data: "ask" + question, invoke: seq(drop(capability(dataAt, 3, dataAt+3, int64(len(question)))), i32(0))},
			host.Call{Policy: host.Policy{Grant: host.Grant{Ask: true}}, Services: host.Services{Ask: func(context.Context, abi.Questions) (abi.Answers, error) {
				slow()
				return abi.Answers{}, host.ErrDenied
			}}},
		},
		"progress":   {held, host.Call{Observers: host.Observers{Progress: func(host.Progress) { slow() }}}},
		"output":     {guest{invoke: seq(drop(write(abi.StreamOutput, 0, 1)), i32(0))}, host.Call{Observers: host.Observers{Stdout: onWrite(slow)}}},
		"log":        {logging, host.Call{}},
		"checkpoint": {guest{data: `checkpoint.save{}`, invoke: seq(drop(capability(dataAt, 15, dataAt+15, 2)), i32(0))}, host.Call{Services: host.Services{Checkpoint: &host.Checkpoint{Save: func(context.Context, []byte) error { slow(); return nil }}}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := hostWith(t, host.Config{Logger: slog.New(&handler{slog.NewTextHandler(io.Discard, nil), slow})})
				h.Processors(1)
				m, echoes := compile(t, h, c.guest.wasm()), compile(t, h, echo.wasm())
				c.call.Policy.Timeout = 10 * long
				var waits sync.WaitGroup
				waits.Go(func() {
					begin := time.Now()
					o := do(context.Background(), h, m, c.call)
					require.NoError(t, o.err)
					require.GreaterOrEqual(t, time.Since(begin), long)
				})
				synctest.Wait()

				begin := time.Now()
				require.NoError(t, do(context.Background(), h, echoes, host.Call{Args: []byte(`{}`)}).err)
				require.Less(t, time.Since(begin), time.Second)
				waits.Wait()
			})
		})
	}
}

// handler calls a function when a plugin has logged.
type handler struct {
	slog.Handler
	call func()
}

func (h *handler) Handle(context.Context, slog.Record) error { h.call(); return nil }
func (h *handler) WithAttrs([]slog.Attr) slog.Handler        { return h }

// logging is a plugin that logs once in each call.
var logging = guest{data: "x", invoke: seq(drop(write(abi.StreamErrorLog, dataAt, 1)), i32(0))}

// TestMemoryOfAnEndedCall: the next call has it, although it is given back while
// nobody waits.
func TestMemoryOfAnEndedCall(t *testing.T) {
	const pages = 1024
	h := hostWith(t, host.Config{Memory: 3 * pages / 2 * page})
	fill := append(op(wasmbin.OpMemoryFill, i32(0), i32(1), i32(pages*page)), 0)
	m := compile(t, h, guest{invoke: seq(drop(grow(pages)), fill, i32(1))}.wasm())
	for range 30 {
		o := do(context.Background(), h, m, host.Call{Traits: host.Traits{ImpureInit: true}, Policy: host.Policy{Memory: 2 * pages * page}})
		require.Equal(t, abi.ToolError, o.Kind, "%v", o.err)
	}
}
