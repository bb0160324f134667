package host_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// startedOp is an operation that a guest starts.
type startedOp struct{ name, request string }

// waiter starts operations and tells what call_start returns. It then waits for ends
// times, and tells each time the id and the code, and writes the response to STDERR.
func waiter(ends int64, ops ...startedOp) guest {
	const endsAt, room = 8, 32 << 10
	g := guest{}
	begin := seq()
	for _, o := range ops {
		at := dataAt + int64(len(g.data))
		g.data += o.name + o.request
		begin = seq(begin, set(0, seq(i32(at), i32(int64(len(o.name))), i32(at+int64(len(o.name))), i32(int64(len(o.request))), call(fnStart))), tell(get(0)))
	}
	g.invoke = seq(begin, i32(int64(abi.InvokeWaiting)))
	respond := seq(set(2, read(abi.FieldResponse, room, room)), i32(int64(abi.StreamStderr)), i32(room), get(2), call(fnWrite), drop(nil))
	newline := dataAt + int64(len(g.data))
	g.data += "\n"
	g.resume = seq(tell(get(0)), tell(get(1)), respond, drop(write(abi.StreamStderr, newline, 1)),
		store(endsAt, seq(load(i32(endsAt)), i32(1), []byte{0x6a})),                                        // i32.add
		when(seq(load(i32(endsAt)), i32(ends), []byte{0x47}), i32(int64(abi.InvokeWaiting)), []byte{0x0f}), // i32.ne, return
		i32(0))
	return g
}

func sleeping(ms int) startedOp { return startedOp{"sleep", fmt.Sprintf(`{"ms":%d}`, ms)} }
func calling(tool string) startedOp {
	return startedOp{"tool.call", fmt.Sprintf(`{"tool":%q}`, tool)}
}

// TestWaiting: what a guest sees of the operations that it starts.
func TestWaiting(t *testing.T) {
	value := func(v string) abi.Result { return abi.Result{Kind: abi.Success, Value: json.RawMessage(v)} }
	const done = int32(len("{}"))
	for _, c := range []struct {
		name   string
		ops    []startedOp
		ends   int64
		codes  []int32 // of call_start, then id and code of each end
		answer string  // of the ends, by line
	}{
		{"in the order they end", []startedOp{sleeping(30), sleeping(10), sleeping(20)}, 3, []int32{1, 2, 3, 2, done, 3, done, 1, done}, "{}\n{}\n{}\n"},
		{"nothing to wait for", []startedOp{sleeping(0)}, 1, []int32{1, 1, done}, "{}\n"},
		{"refused, which takes no id", []startedOp{{"sleep", "{}"}, {"ask", question}, {"slep", "{}"}, {"sleep", `{"ms":5}`}}, 1,
			[]int32{abi.CallInvalid, abi.CallDenied, abi.CallUnknown, 1, 1, done}, "{}\n"},
		{"a tool", []startedOp{calling("one")}, 1, []int32{1, 1, 28}, `{"kind":"success","value":1}` + "\n"},
		{"a tool that is not granted", []startedOp{calling("other"), sleeping(1)}, 1, []int32{abi.CallDenied, 1, 1, done}, "{}\n"},
		{"a service refuses", []startedOp{calling("refusing")}, 1, []int32{1, 1, abi.CallDenied}, `{"code":"denied","message":"not today"}` + "\n"},
		{"at once", []startedOp{{"kv.set", `{"key":"a","value":1}`}, {"kv.get", `{"key":"a"}`}, {"kv.get", `{}`}}, 2,
			[]int32{1, 2, abi.CallInvalid, 1, 13, 2, 23}, "{\"version\":1}\n{\"version\":1,\"value\":1}\n"},
		{"canceled", []startedOp{sleeping(1000000), {"op.cancel", `{"id":1}`}}, 2, []int32{1, 2, 1, abi.CallCanceled, 2, done},
			`{"code":"canceled","message":"the operation was canceled"}` + "\n{}\n"},
		{"canceled with no such id", []startedOp{{"op.cancel", `{"id":1}`}, {"op.cancel", `{"id":0}`}, {"op.cancel", `{}`}, sleeping(1)}, 1,
			[]int32{abi.CallInvalid, abi.CallInvalid, abi.CallInvalid, 1, 1, done}, "{}\n"},
		{"too large", []startedOp{{"sleep", strings.Repeat(" ", 1<<10)}, sleeping(1)}, 1, []int32{abi.CallInvalid, 1, 1, done}, "{}\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, nil)
				m := compile(t, h, waiter(c.ends, c.ops...).wasm())
				for range 2 { // the second call has the instance of the first
					o := do(t.Context(), h, m, host.Call{
						Policy: host.Policy{Grant: host.Grant{Clock: true, Tools: []string{"one", "refusing"}, KV: host.KV{Mode: abi.StoreWrite}}},
						Services: host.Services{KV: &memoryValues{}, CallTool: func(_ context.Context, t host.ToolCall) (abi.Result, error) {
							if t.Tool == "refusing" {
								return abi.Result{}, &host.Refusal{Code: abi.CallDenied, Message: "not today"}
							}
							return value("1"), nil
						}},
					})
					require.NoError(t, o.err)
					require.Equal(t, abi.Success, o.Kind)
					if c.name == "canceled" { // either may end first
						require.ElementsMatch(t, c.codes, o.codes())
						require.ElementsMatch(t, strings.SplitAfter(c.answer, "\n"), strings.SplitAfter(o.stderr, "\n"))
						continue
					}
					require.Equal(t, c.codes, o.codes())
					require.Equal(t, c.answer, o.stderr)
				}
			})
		})
	}
}

// TestWaitingAtATime: the tools that are started run at the same time.
func TestWaitingAtATime(t *testing.T) {
	const tools = 20
	ops := make([]startedOp, tools)
	for i := range ops {
		ops[i] = calling("one")
	}
	var all sync.WaitGroup
	all.Add(tools)

	o := run(t, waiter(tools, ops...), host.Call{
		Policy: host.Policy{Grant: host.Grant{Tools: []string{"one"}}},
		Services: host.Services{CallTool: func(context.Context, host.ToolCall) (abi.Result, error) {
			all.Done()
			all.Wait()
			return abi.Result{Kind: abi.Success}, nil
		}},
	})
	require.NoError(t, o.err)
	require.Equal(t, tools, strings.Count(o.stderr, "success"))
}

// TestWaitingForTooMuch: at most abi.MaxPending operations are pending at a time.
func TestWaitingForTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ops := make([]startedOp, abi.MaxPending+1)
		for i := range ops {
			ops[i] = sleeping(1000)
		}
		o := run(t, waiter(abi.MaxPending, ops...), host.Call{Policy: host.Policy{Grant: host.Grant{Clock: true}}})
		require.NoError(t, o.err)
		require.Equal(t, []int32{abi.MaxPending, abi.CallLimit}, o.codes()[abi.MaxPending-1:abi.MaxPending+1])
	})

	large := guest{data: "sleep", resume: code(i32(0)), invoke: seq(drop(grow(17)),
		tell(seq(i32(dataAt), i32(5), i32(0), i32(abi.MaxStart+1), call(fnStart))), i32(0))}
	o := run(t, large, host.Call{Policy: host.Policy{Grant: host.Grant{Clock: true}}})
	require.NoError(t, o.err)
	require.Equal(t, []int32{abi.CallLimit}, o.codes())
}

// TestHowWaitingEnds: how a call ends that waits.
func TestHowWaitingEnds(t *testing.T) {
	forNothing := guest{data: "sleep", resume: code(i32(0)), invoke: code(i32(int64(abi.InvokeWaiting)))}
	withoutWaiting := waiter(1, calling("slow"))
	withoutWaiting.invoke = withoutWaiting.invoke[:len(withoutWaiting.invoke)-len(i32(int64(abi.InvokeWaiting)))]
	withoutWaiting.invoke = seq(withoutWaiting.invoke, i32(0))
	traps := waiter(2, sleeping(1), calling("slow"))
	traps.resume = unreachable()
	strange := waiter(2, sleeping(1), calling("slow"))
	strange.resume = code(i32(9))
	spins := waiter(2, sleeping(1), calling("slow"))
	spins.resume = seq(forever(), i32(0))

	for _, c := range []struct {
		name   string
		guest  guest
		policy host.Policy
		kind   abi.Kind
		reason error
		text   string
	}{
		{"for nothing", forNothing, host.Policy{}, abi.Internal, host.ErrABI, "waiting, but no operation is pending"},
		{"without waiting", withoutWaiting, host.Policy{}, abi.Success, nil, ""},
		{"traps", traps, host.Policy{}, abi.Internal, host.ErrTrap, "unreachable"},
		{"a strange answer", strange, host.Policy{}, abi.Internal, host.ErrABI, "returned 9"},
		{"spins", spins, host.Policy{Fuel: 1e6}, abi.LimitReached, host.ErrFuel, ""},
		{"too long", waiter(1, calling("slow")), host.Policy{Timeout: time.Minute}, abi.LimitReached, context.DeadlineExceeded, ""},
		{"a service panics", waiter(1, calling("panics")), host.Policy{}, abi.Internal, nil, "a function of the caller panicked: oh"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var running atomic.Int32
				c.policy.Grant = host.Grant{Clock: true, Tools: []string{"slow", "panics"}}
				o := run(t, c.guest, host.Call{Policy: c.policy, Services: host.Services{
					CallTool: func(ctx context.Context, t host.ToolCall) (abi.Result, error) {
						if t.Tool == "panics" {
							panic("oh")
						}
						running.Add(1)
						<-ctx.Done()
						time.Sleep(time.Second) // as long as the call waits for it
						running.Add(-1)
						return abi.Result{Kind: abi.CanceledKind}, nil
					},
				}})
				require.Zero(t, running.Load(), "nothing that was started outlives its call")
				require.Equal(t, c.kind, o.Kind, o.err)
				if c.reason != nil {
					require.ErrorIs(t, o.err, c.reason)
				}
				if c.text != "" {
					require.ErrorContains(t, o.err, c.text)
				}
			})
		})
	}
}

// TestWaitingStops: a stop ends what is pending, and the guest may still finish.
func TestWaitingStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		time.AfterFunc(time.Hour/2, func() { close(stop) })
		o := run(t, waiter(3, sleeping(1e9), calling("slow"), startedOp{"messages.receive", `{"wait_ms":1000000000}`}), host.Call{
			Stopping: stop,
			Policy:   host.Policy{Timeout: 24 * time.Hour, Grant: host.Grant{Clock: true, Tools: []string{"slow"}}},
			Services: host.Services{
				CallTool: func(ctx context.Context, _ host.ToolCall) (abi.Result, error) {
					<-ctx.Done()
					return abi.Result{Kind: abi.CanceledKind}, nil
				},
				Receive: func(ctx context.Context, _ int64, _ time.Duration) ([]host.Message, error) {
					select {
					case <-ctx.Done():
					case <-stop:
					}
					return nil, nil
				},
			},
		})
		require.NoError(t, o.err)
		require.Equal(t, abi.Success, o.Kind)
		require.Equal(t, strings.Repeat(`{"code":"canceled","message":"the call is being stopped"}`+"\n", 3), o.stderr)
	})
}

// TestFuelOfCallsAtATime: calls that run at the same time share what is left, and none
// of them can tell by itself.
func TestFuelOfCallsAtATime(t *testing.T) {
	const budget, tools = 20_000_000, 8
	h := newHost(t, nil)
	spin := compile(t, h, guest{invoke: seq(forever(), i32(0))}.wasm())
	ops := make([]startedOp, tools)
	for i := range ops {
		ops[i] = calling("spin")
	}

	var used atomic.Int64
	o := do(t.Context(), h, compile(t, h, waiter(tools, ops...).wasm()), host.Call{
		Policy: host.Policy{Fuel: budget, Grant: host.Grant{Tools: []string{"spin"}}},
		Services: host.Services{CallTool: func(ctx context.Context, c host.ToolCall) (abi.Result, error) {
			r, err := h.Call(ctx, spin, host.Call{Caller: c.Caller, Policy: host.Policy{Fuel: budget, Timeout: time.Hour}})
			used.Add(r.Usage.Fuel)
			if !errors.Is(err, host.ErrFuel) && !errors.Is(err, context.Canceled) {
				t.Errorf("%v", cmp.Or(err, errors.New("no error")))
			}
			return r, nil
		}},
	})
	require.ErrorIs(t, o.err, host.ErrFuel)
	require.EqualValues(t, budget, o.Usage.Fuel)
	const slice = 100_000
	require.LessOrEqual(t, used.Load(), int64(budget+2*slice*tools), "each may overdraw by what it has when the last one is full")
	require.Greater(t, used.Load(), int64(budget/2))
}

// TestStartTakesResume: a plugin that could not learn how its operations end is refused.
func TestStartTakesResume(t *testing.T) {
	_, err := newHost(t, nil).Inspect(importing(abi.Version, abi.ImportStart, sig("iiii", true)))
	require.ErrorContains(t, err, `export "toolhost_resume": missing: a plugin that imports call_start has to export it`)
}
