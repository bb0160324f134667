package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/checkpoint"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// A keeper is a simple owner of a call that can be suspended: the whole call may be
// repeated, and nothing of it outlives its host but its states.
type keeper struct {
	after   time.Duration
	once    bool // the call must not be repeated
	pressed bool // others need what the call holds
	keep    func(host.SavedState) error
	drop    func() error                        // nil: it keeps no state
	image   func(digest string) ([]byte, error) // nil: it keeps none
}

func (k *keeper) Terms() host.SuspensionTerms {
	return host.SuspensionTerms{After: k.after, Repeats: !k.once}
}

func (k *keeper) Status() host.SuspensionStatus {
	return host.SuspensionStatus{Live: true, UnderPressure: k.pressed}
}

func (k *keeper) Keep(s host.SavedState) error { return k.keep(s) }

func (k *keeper) Drop() error {
	if k.drop == nil {
		return nil
	}
	return k.drop()
}

func (k *keeper) Image(digest string) ([]byte, error) {
	if k.image == nil {
		return nil, errors.New("no images are kept")
	}
	return k.image(digest)
}

func (k *keeper) Ask(context.Context, int32, abi.Questions) (abi.Answers, error) {
	return abi.Answers{}, errors.New("nobody is asked later")
}

func (k *keeper) CrashPolicy(int32, host.ToolCall) host.CrashPolicy { return host.LostOnCrash }

func (k *keeper) Await(context.Context, int32, host.ToolCall) (abi.Result, error) {
	return abi.Result{}, errors.New("no call outlives its host")
}

// A relay makes a call that continues in a new instance each time that it waits.
type relay struct {
	instances int
	states    [][]byte
	untils    []time.Time
	held      []host.SavedState  // states that it did not leave its instance with
	kill      context.CancelFunc // ends the host: the call continues from its last state in another
	died      int                // so often
	once      bool               // its tools must not be called twice
}

// do makes the call. next returns the host and the module for each stretch of it.
func (r *relay) do(ctx context.Context, req host.Call, next func() (*host.Host, *host.Module)) outcome {
	var all outcome
	for {
		var life context.Context
		life, r.kill = context.WithCancel(ctx)
		req.Suspend = &keeper{once: r.once, drop: func() error { req.Continue = nil; return nil }, keep: func(k host.SavedState) error {
			if life.Err() != nil {
				return errors.New("the host is dead")
			}
			req.Continue = k.State
			if k.Hold {
				r.held = append(r.held, k)
				return nil
			}
			r.states, r.untils = append(r.states, k.State), append(r.untils, k.Until)
			return nil
		}}
		h, m := next()
		o := do(life, h, m, req)
		died := life.Err() != nil
		r.kill()
		if died {
			r.died++
		}

		r.instances++
		o.stdout, o.stderr, o.Usage.Fuel = all.stdout+o.stdout, all.stderr+o.stderr, all.Usage.Fuel+o.Usage.Fuel
		switch all = o; {
		case errors.Is(o.err, host.ErrSuspended):
			time.Sleep(time.Until(r.untils[len(r.untils)-1]))
		case !died:
			return all
		}
	}
}

func TestSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		m := compile(t, h, waiter(3, sleeping(30), sleeping(10), sleeping(20)).wasm())
		call := host.Call{Policy: host.Policy{Grant: host.Grant{Clock: true}}}
		want := do(t.Context(), h, m, call)
		require.NoError(t, want.err)

		began := time.Now()
		var r relay
		o := r.do(t.Context(), call, func() (*host.Host, *host.Module) { return h, m })
		require.NoError(t, o.err)
		require.Equal(t, 4, r.instances)
		require.Equal(t, []any{want.stdout, want.stderr, want.Usage.Fuel, want.Kind}, []any{o.stdout, o.stderr, o.Usage.Fuel, o.Kind})
		require.Equal(t, 30*time.Millisecond, time.Since(began), "the time that has passed counts")
		require.Equal(t, []time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond},
			[]time.Duration{r.untils[0].Sub(began), r.untils[1].Sub(began), r.untils[2].Sub(began)})
		require.Less(t, len(r.states[0]), 1000)
	})
}

// TestSuspendElsewhere: a call continues in another host, and in an interpreter.
func TestSuspendElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wasm := waiter(3, sleeping(3), sleeping(1), sleeping(2)).wasm()
		call := host.Call{Policy: host.Policy{Grant: host.Grant{Clock: true}}}
		var r relay
		o := r.do(t.Context(), call, func() (*host.Host, *host.Module) {
			h := newHost(t, nil)
			m, err := h.CompileWith(t.Context(), wasm, host.CompileOptions{Interpret: r.instances%2 == 1})
			require.NoError(t, err)
			return h, m
		})
		require.NoError(t, o.err)
		require.Equal(t, 4, r.instances)
		require.Equal(t, "{}\n{}\n{}\n", o.stderr)
	})
}

// TestSuspendWhileItCan: what cannot be waited for again keeps the instance.
func TestSuspendWhileItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name      string
			guest     guest
			policy    host.Grant
			instances int
		}{
			{"messages", waiter(1, startedOp{"messages.receive", `{"wait_ms":1000}`}), host.Grant{}, 2},
			{"a tool", waiter(1, calling("slow")), host.Grant{Tools: []string{"slow"}}, 1},
			{"a tool, and then time", waiter(2, calling("slow"), sleeping(60_000)), host.Grant{Tools: []string{"slow"}, Clock: true}, 2},
			{"folders", waiter(1, sleeping(1)), host.Grant{Clock: true, Files: []host.Mount{{Dir: t.TempDir(), Path: "/work"}}}, 1},
			{"a question that cannot be asked later", waiter(1, startedOp{"ask", question}), host.Grant{Ask: true}, 1},
			{"canceled", waiter(2, sleeping(1e9), startedOp{"op.cancel", `{"id":1}`}), host.Grant{Clock: true}, 1},
		} {
			h := newHost(t, nil)
			m := compile(t, h, c.guest.wasm())
			var r relay
			o := r.do(t.Context(), host.Call{
				Policy: host.Policy{Grant: c.policy},
				Services: host.Services{
					Ask: func(context.Context, abi.Questions) (abi.Answers, error) {
						time.Sleep(time.Second)
						return abi.Answers{}, nil
					},
					CallTool: func(context.Context, host.ToolCall) (abi.Result, error) {
						time.Sleep(time.Second)
						return abi.Result{Kind: abi.Success}, nil
					},
					Receive: func(ctx context.Context, _ int64, wait time.Duration) ([]host.Message, error) {
						select {
						case <-ctx.Done():
						case <-time.After(wait):
						}
						return nil, nil
					},
				},
			}, func() (*host.Host, *host.Module) { return h, m })
			require.NoError(t, o.err, c.name)
			require.Equal(t, c.instances, r.instances, c.name)
		}
	})
}

// TestSuspendFails: a call whose state cannot be stored waits on.
func TestSuspendFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		o := run(t, waiter(2, sleeping(1000), sleeping(2000)), host.Call{
			Policy: host.Policy{Grant: host.Grant{Clock: true}},
			Services: host.Services{Suspend: &keeper{after: 100 * time.Millisecond, keep: func(host.SavedState) error {
				tries++
				return errors.New("the disk is full")
			}}},
		})
		require.NoError(t, o.err)
		require.Equal(t, "{}\n{}\n", o.stderr)
		require.Equal(t, 1, tries)
	})
}

// TestContinueRefuses: states may come from a disk that others have written to.
func TestContinueRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		wasm := waiter(1, sleeping(1000)).wasm()
		m := compile(t, h, wasm)
		call := host.Call{Policy: host.Policy{Grant: host.Grant{Clock: true}}}
		var kept []byte
		call.Suspend = &keeper{keep: func(k host.SavedState) error { kept = k.State; return nil }}
		require.ErrorIs(t, do(t.Context(), h, m, call).err, host.ErrSuspended)
		call.Suspend = nil

		for name, c := range map[string]struct {
			change func(*host.Call) *host.Module
			reason error
			text   string
		}{
			"cut":                      {func(c *host.Call) *host.Module { c.Continue = kept[:len(kept)-1]; return m }, host.ErrState, "damaged"},
			"empty":                    {func(c *host.Call) *host.Module { c.Continue = []byte{}; return m }, host.ErrState, "damaged"},
			"another plugin":           {func(c *host.Call) *host.Module { return compile(t, h, waiter(1, sleeping(1001)).wasm()) }, host.ErrState, "the plugin has changed since"},
			"less memory":              {func(c *host.Call) *host.Module { c.Policy.Memory = 1; return m }, host.ErrMemory, ""},
			"the clock is not granted": {func(c *host.Call) *host.Module { c.Policy.Clock = false; return m }, nil, ""},
			"less fuel":                {func(c *host.Call) *host.Module { c.Policy.Fuel = 100; return m }, host.ErrFuel, ""},
			"stopped":                  {func(c *host.Call) *host.Module { s := make(chan struct{}); close(s); c.Stopping = s; return m }, nil, ""},
			"as it was":                {func(c *host.Call) *host.Module { return m }, nil, ""},
		} {
			one := call
			one.Continue = kept
			module := c.change(&one)
			o := do(t.Context(), h, module, one)
			if c.reason == nil {
				require.NoError(t, o.err, name)
				continue
			}
			require.ErrorIs(t, o.err, c.reason, name)
			require.ErrorContains(t, o.err, c.text, name)
		}
	})
}

// TestContinueWhenTheClockIsSetBack: in the process that has suspended a call, its own clock
// says how much time has passed. In another one only the clock of the wall can: by it none has.
func TestContinueWhenTheClockIsSetBack(t *testing.T) {
	for name, c := range map[string]struct {
		boot any // in place of that of the process; nil: it
		want time.Duration
	}{
		"in the same process": {nil, 20 * time.Second},
		"after a restart":     {"another", 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, nil)
				m := compile(t, h, waiter(2, sleeping(30_000), sleeping(10_000)).wasm())
				req := host.Call{Policy: host.Policy{Grant: host.Grant{Clock: true}, Timeout: 2 * time.Hour}}
				var kept []byte
				req.Suspend = &keeper{keep: func(k host.SavedState) error { kept = k.State; return nil }}
				require.ErrorIs(t, do(t.Context(), h, m, req).err, host.ErrSuspended)

				point, err := checkpoint.Decode(kept, 1<<30)
				require.NoError(t, err)
				var state map[string]any
				require.NoError(t, json.Unmarshal(point.Host, &state))
				later := func(in map[string]any) { // as it was stored before the clock was set back
					at, err := time.Parse(time.RFC3339Nano, in["at"].(string))
					require.NoError(t, err)
					in["at"] = at.Add(time.Hour)
				}
				later(state)
				for _, w := range state["pending"].([]any) {
					later(w.(map[string]any))
				}
				if c.boot != nil {
					state["boot"] = c.boot
				}
				point.Host, err = json.Marshal(state)
				require.NoError(t, err)
				req.Continue, err = point.Encode()
				require.NoError(t, err)

				time.Sleep(10 * time.Second)
				began := time.Now()
				req.Suspend = nil
				require.NoError(t, do(t.Context(), h, m, req).err)
				require.InDelta(t, c.want.Seconds(), time.Since(began).Seconds(), 0.1, "a call that gives way to others sleeps a millisecond of the bubble before it waits")
			})
		})
	}
}

// suspendedAfter makes a call that waits for an hour, and returns when it was suspended, and
// its state.
func suspendedAfter(t *testing.T, h *host.Host, m *host.Module, req host.Call, short bool) (after time.Duration, state []byte) {
	t.Helper()
	began := time.Now()
	req.Suspend = &keeper{after: 10 * time.Second, pressed: short, keep: func(k host.SavedState) error {
		state = k.State
		return nil
	}}
	require.ErrorIs(t, do(t.Context(), h, m, req).err, host.ErrSuspended)
	return time.Since(began), state
}

// TestSuspendAtOnce: a call that waits gives up its instance at once while others need what
// it holds.
func TestSuspendAtOnce(t *testing.T) {
	sleeps := waiter(1, sleeping(3600_000))
	sleeps.change = func(m *wasmbin.Module) { m.Memories[0].Min = 100 }
	call := host.Call{Policy: host.Policy{Grant: host.Grant{Clock: true}, Timeout: 2 * time.Hour}}

	t.Run("as the caller says", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t, nil)
			m := compile(t, h, sleeps.wasm())
			for _, c := range []struct {
				short        bool
				after, again time.Duration
			}{
				{false, 10 * time.Second, 15 * time.Second}, // what has ended may take a while to arrive
				{true, 0, 10 * time.Second},
			} {
				after, state := suspendedAfter(t, h, m, call, c.short)
				require.Equal(t, c.after, after)
				continued := call
				continued.Continue = state
				again, _ := suspendedAfter(t, h, m, continued, c.short)
				require.Equal(t, c.again, again)
			}
		})
	})

	t.Run("others wait for slots", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := hostWith(t, host.Config{CacheDir: plugintest.CacheDir(), Calls: 1})
			m := compile(t, h, sleeps.wasm())
			var times []time.Duration
			var mu sync.Mutex
			var calls sync.WaitGroup
			for range 3 {
				calls.Go(func() {
					after, _ := suspendedAfter(t, h, m, call, false)
					mu.Lock()
					defer mu.Unlock()
					times = append(times, after)
				})
				synctest.Wait()
			}
			calls.Wait()
			slices.Sort(times)
			require.Equal(t, []time.Duration{10 * time.Second, 10 * time.Second, 20 * time.Second}, times,
				"the second has its place from the first, and gives it to the third at once")
		})
	})

	t.Run("the memory is short", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := hostWith(t, host.Config{CacheDir: plugintest.CacheDir(), Memory: 16 << 20, Warm: -1})
			m := compile(t, h, sleeps.wasm())
			after, _ := suspendedAfter(t, h, m, call, false)
			require.Equal(t, 10*time.Second, after)

			ctx, stop := context.WithCancel(t.Context())
			var other sync.WaitGroup
			other.Go(func() { do(ctx, h, m, call) })
			synctest.Wait()
			after, _ = suspendedAfter(t, h, m, call, false)
			require.Zero(t, after)
			stop()
			other.Wait()
		})
	})
}
