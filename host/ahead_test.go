package host_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// An owner of calls that can be suspended writes down what it is asked to do. Tools are
// made in the manner that they are named after, and take a second.
type owner struct {
	keeper
	repeats bool
	mu      sync.Mutex
	events  []string
	states  []host.SavedState
	fails   error // of Keep
	hangs   bool  // the tools never end by themselves
}

func (o *owner) say(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, fmt.Sprintf(format, args...))
}

func (o *owner) Terms() host.SuspensionTerms {
	return host.SuspensionTerms{After: cmp.Or(o.after, 10*time.Second), Repeats: o.repeats}
}

func (o *owner) Keep(k host.SavedState) error {
	o.say("keep begin %v await %v hold %v", k.Begin, k.Await, k.Hold)
	o.states = append(o.states, k)
	return o.fails
}

func (o *owner) Drop() error { o.say("drop"); return nil }

func (o *owner) CrashPolicy(_ int32, t host.ToolCall) host.CrashPolicy {
	return map[string]host.CrashPolicy{"once": host.LostOnCrash, "again": host.RepeatedOnCrash, "apart": host.Detached}[t.Tool]
}

func (o *owner) Await(ctx context.Context, op int32, t host.ToolCall) (abi.Result, error) {
	o.say("await %d %s", op, t.Tool)
	return o.end(ctx)
}

func (o *owner) call(ctx context.Context, t host.ToolCall) (abi.Result, error) {
	o.say("call %s", t.Tool)
	return o.end(ctx)
}

func (o *owner) end(ctx context.Context) (abi.Result, error) {
	wait := time.Second
	if o.hangs {
		wait = 1e6 * time.Hour
	}
	select {
	case <-time.After(wait):
		return abi.Result{Kind: abi.Success, Value: json.RawMessage(`1`), Usage: abi.Usage{Fuel: 1000}}, nil
	case <-ctx.Done():
		o.say("ended: %v", context.Cause(ctx))
		return abi.Result{Kind: abi.CanceledKind}, ctx.Err()
	}
}

func (o *owner) request() host.Call {
	return host.Call{
		Policy:   host.Policy{Grant: host.Grant{Clock: true, Tools: []string{"once", "again", "apart"}, KV: host.KV{Mode: abi.StoreWrite}}},
		Services: host.Services{Suspend: o, CallTool: o.call, KV: &memoryValues{}},
	}
}

// TestAhead: what must not be done twice begins after a state that knows of it is stored.
func TestAhead(t *testing.T) {
	once, again, apart := calling("once"), calling("again"), calling("apart")
	set := startedOp{"kv.set", `{"key":"a","value":1}`}
	for _, c := range []struct {
		name   string
		ends   int64
		ops    []startedOp
		setup  func(*owner)
		events []string
		answer string
	}{
		{"again", 1, []startedOp{again}, nil, []string{"call again"}, answered},
		{"once", 1, []startedOp{once}, nil, []string{"keep begin [] await [] hold true", "call once"}, answered},
		{"apart", 1, []startedOp{apart}, nil, []string{"keep begin [1] await [1] hold true", "await 1 apart"}, answered},
		{"together", 3, []startedOp{apart, sleeping(3000), apart}, nil, []string{"keep begin [1 3] await [1 3] hold true", "await 1 apart", "await 3 apart"}, answered + answered + "{}\n"},
		{"canceled before it begins", 2, []startedOp{apart, {"op.cancel", `{"id":1}`}}, nil, []string{"keep begin [] await [] hold true"}, "{}\n" + canceledAnswer},
		{"not stored", 1, []startedOp{apart}, func(o *owner) { o.fails = errors.New("the disk is full") }, []string{"keep begin [1] await [1] hold true"},
			`{"code":"failed","message":"the state of the run could not be stored, so it has not begun"}` + "\n"},
		{"refused", 1, []startedOp{once}, func(o *owner) { o.fails = &host.Refusal{Code: abi.CallLimit, Message: "too many"} }, []string{"keep begin [] await [] hold true"},
			`{"code":"limit","message":"too many"}` + "\n"},
		{"at once, without a state", 1, []startedOp{set}, nil, nil, "{\"version\":1}\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var o owner
				if c.setup != nil {
					c.setup(&o)
				}
				r := run(t, waiter(c.ends, c.ops...), o.request())
				require.NoError(t, r.err)
				slices.Sort(o.events[min(1, len(o.events)):])
				require.Equal(t, c.events, o.events)
				require.Equal(t, c.answer, r.stderr)
			})
		})
	}
}

const (
	answered       = `{"kind":"success","value":1}` + "\n"
	canceledAnswer = `{"code":"canceled","message":"the operation was canceled"}` + "\n"
	lostAnswer     = `{"code":"lost","message":"it had begun when its host ended: whether it took effect is not known"}` + "\n"
)

// TestAheadAfterACrash: a call continues from the state that was stored before its
// operations began. What the host itself was doing is lost, unless it may be done again.
func TestAheadAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		m := compile(t, h, waiter(4, calling("apart"), calling("once"), calling("again"), sleeping(5000)).wasm())
		o := owner{hangs: true}
		ctx, crash := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, crash)
		require.ErrorIs(t, do(ctx, h, m, o.request()).err, context.Canceled)
		require.Equal(t, []int32{1}, o.states[0].Begin)

		after := &owner{}
		req := after.request()
		req.Continue = o.states[0].State
		began := time.Now()
		r := do(t.Context(), h, m, req)
		require.NoError(t, r.err)
		require.ElementsMatch(t, []string{"await 1 apart", "call again"}, after.events)
		require.Equal(t, lostAnswer+answered+answered+"{}\n", r.stderr)
		require.Equal(t, 3*time.Second, time.Since(began), "the time that has passed counts")
	})
}

// TestAheadOfAShutdown: a call that is interrupted while it waits stores where it is.
func TestAheadOfAShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		m := compile(t, h, waiter(2, calling("again"), sleeping(1000)).wasm())
		o := owner{hangs: true}
		ctx, end := context.WithCancelCause(t.Context())
		time.AfterFunc(2*time.Second, func() { end(errors.New("the host shuts down")) })
		require.Error(t, do(ctx, h, m, o.request()).err)
		require.Len(t, o.states, 1)
		require.True(t, o.states[0].Hold)

		after := &owner{}
		req := after.request()
		req.Continue = o.states[0].State
		r := do(t.Context(), h, m, req)
		require.NoError(t, r.err)
		require.Equal(t, answered, r.stderr, "that the sleep had ended was known before")
		require.Equal(t, []string{"call again"}, after.events)
	})
}

// TestAheadSuspended: while all that a call waits for is made apart, it has no instance.
// It is not charged twice for what it waits for.
func TestAheadSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		m := compile(t, h, waiter(2, calling("apart"), calling("apart")).wasm())
		o := owner{hangs: true}
		req := o.request()
		r := do(t.Context(), h, m, req)
		require.ErrorIs(t, r.err, host.ErrSuspended)
		require.Equal(t, []string{"keep begin [1 2] await [1 2] hold true", "keep begin [] await [1 2] hold false"}, []string{o.events[0], o.events[len(o.events)-1]})
		require.True(t, o.states[1].Until.IsZero())
		first := r.Usage.Fuel

		after := &owner{}
		req = after.request()
		req.Continue = o.states[1].State
		r = do(t.Context(), h, m, req)
		require.NoError(t, r.err)
		require.Equal(t, answered+answered, r.stderr)
		require.ElementsMatch(t, []string{"await 1 apart", "await 2 apart"}, after.events)
		require.Less(t, r.Usage.Fuel, first+10_000, "of this stretch")
		require.Greater(t, r.Usage.Fuel, int64(2000), "with that of the tools")
	})
}

// TestAheadDrops: before something is done that the stored state does not know of, and after
// a checkpoint from which the call begins again, the state is removed.
func TestAheadDrops(t *testing.T) {
	set, take, save := startedOp{"kv.set", `{"key":"a","value":1}`}, startedOp{"messages.receive", `{"after":1}`}, startedOp{"checkpoint.save", `{"data":"eA=="}`}
	for _, c := range []struct {
		operation startedOp
		repeats   bool
		events    []string
	}{
		{set, false, []string{"drop"}},
		{set, true, nil}, // the call may be made twice as a whole
		{take, false, []string{"drop"}},
		{take, true, []string{"drop"}},
		{save, false, nil},
		{save, true, []string{"drop"}},
	} {
		t.Run(fmt.Sprintf("%s/%v", c.operation.name, c.repeats), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, nil)
				g := waiter(2, sleeping(60_000))
				op, request := c.operation.name, c.operation.request
				at := dataAt + int64(len(g.data))
				g.data += op + request
				call := drop(seq(i32(at), i32(int64(len(op))), i32(at+int64(len(op))), i32(int64(len(request))), call(fnCall)))
				g.resume = seq(call, call, i32(0))
				m := compile(t, h, g.wasm())
				requestOf := func(o *owner) host.Call {
					o.repeats = c.repeats
					req := o.request()
					req.Receive = func(context.Context, int64, time.Duration) ([]host.Message, error) { return nil, nil }
					req.Checkpoint = &host.Checkpoint{Load: func() []byte { return nil }, Save: func(context.Context, []byte) error { return nil }}
					return req
				}
				o := owner{}
				require.ErrorIs(t, do(t.Context(), h, m, requestOf(&o)).err, host.ErrSuspended)
				time.Sleep(time.Minute)

				after := &owner{}
				req := requestOf(after)
				req.Continue = o.states[0].State
				require.NoError(t, do(t.Context(), h, m, req).err)
				require.Equal(t, c.events, after.events, "once")
			})
		})
	}
}

// TestAheadWithdrawn: who makes calls apart learns that nobody waits for them any more.
func TestAheadWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := owner{hangs: true}
		r := run(t, waiter(1, calling("apart"), sleeping(1000)), o.request())
		require.NoError(t, r.err)
		require.Contains(t, o.events, "ended: "+host.ErrWithdrawn.Error())
	})
}

// TestAheadTogether: a call is not suspended at the moment at which all that it waits for
// ends: nothing would continue it.
func TestAheadTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		m := compile(t, h, waiter(1, calling("apart")).wasm())
		for range 50 {
			var o owner
			o.after = time.Second // as long as the tool takes
			r := do(t.Context(), h, m, o.request())
			for _, k := range o.states {
				require.True(t, k.Hold || len(k.Await) > 0, "it waits for nothing")
			}
			if !errors.Is(r.err, host.ErrSuspended) {
				require.NoError(t, r.err)
			}
		}
	})
}
