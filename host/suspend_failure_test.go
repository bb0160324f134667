package host_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// TestAheadOfAnEndThatFails: a call ends, and nothing of it hangs, if an operation ended in a
// way that ends the call while others are held.
func TestAheadOfAnEndThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := waiter(2, calling("again"), calling("apart"))
		op, request := "tool.call", `{"tool":"once"}` // synchronous: takes a second, in which "again" ends
		at := dataAt + int64(len(g.data))
		g.data += op + request
		wait := drop(seq(i32(at), i32(int64(len(op))), i32(at+int64(len(op))), i32(int64(len(request))), call(fnCall)))
		g.invoke = seq(g.invoke[:len(g.invoke)-len(i32(int64(abi.InvokeWaiting)))], wait, i32(int64(abi.InvokeWaiting)))
		o := owner{}
		req := o.request()
		req.CallTool = func(ctx context.Context, t host.ToolCall) (abi.Result, error) {
			if t.Tool == "again" {
				panic("the caller has a fault")
			}
			return o.call(ctx, t)
		}
		r := run(t, g, req)
		require.Error(t, r.err)
	})
}

// TestRestartOfACallThatEnds: a call that is lost while its state is stored ends.
func TestRestartOfACallThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := waiter(2, startedOp{"messages.receive", `{"wait_ms":1000000}`}, sleeping(1e6))
		ctx, lost := context.WithCancelCause(t.Context())
		req := host.Call{
			Policy: host.Policy{Grant: host.Grant{Clock: true}},
			Services: host.Services{
				Receive: func(ctx context.Context, _ int64, _ time.Duration) ([]host.Message, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				},
				Suspend: &keeper{after: time.Second, keep: func(host.SavedState) error {
					lost(errors.New("the lease is lost"))
					return errors.New("fenced")
				}},
			},
		}
		h := newHost(t, nil)
		m := compile(t, h, g.wasm())
		require.ErrorIs(t, do(ctx, h, m, req).err, context.Canceled)
	})
}

// TestShutdownKeepsWhatHasEnded: what has ended when a host shuts down is in the state; what
// ends a moment later is lost.
func TestShutdownKeepsWhatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		m := compile(t, h, waiter(2, calling("once"), sleeping(3000)).wasm())
		o := owner{}
		ctx, end := context.WithCancelCause(t.Context())
		time.AfterFunc(2*time.Second, func() { end(errors.New("the host shuts down")) })
		req := o.request()
		req.CallTool = func(ctx context.Context, t host.ToolCall) (abi.Result, error) {
			<-ctx.Done() // a tool that ends with what it has
			return abi.Result{Kind: abi.Success, Value: []byte(`1`)}, nil
		}
		require.Error(t, do(ctx, h, m, req).err)
		require.Len(t, o.states, 2)

		after := &owner{}
		req = after.request()
		req.Continue = o.states[1].State
		r := do(t.Context(), h, m, req)
		require.NoError(t, r.err)
		require.Contains(t, []string{answered + "{}\n", lostAnswer + "{}\n"}, r.stderr)
	})
}

// TestSuspendAfterAFailure: a state that could not be stored once is stored later, so that a
// long sleep does not keep its instance, and does not run out of time.
func TestSuspendAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := 1
		req := host.Call{
			Policy: host.Policy{Grant: host.Grant{Clock: true}, Timeout: time.Hour},
			Services: host.Services{Suspend: &keeper{after: time.Second, keep: func(host.SavedState) error {
				if fails > 0 {
					fails--
					return errors.New("the disk is full")
				}
				return nil
			}}},
		}
		began := time.Now()
		r := run(t, waiter(1, sleeping(7*24*3600*1000)), req)
		require.ErrorIs(t, r.err, host.ErrSuspended)
		require.Less(t, time.Since(began), time.Minute)
	})
}
