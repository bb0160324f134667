package host_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// TestInnerCallBecomesBackground: when the caller of a call leaves it to the background,
// the calls that it waits for give way to direct calls too.
func TestInnerCallBecomesBackground(t *testing.T) {
	h := newHost(t, nil)
	outer := compile(t, h, ask("tool.call", `{"tool":"spin"}`).wasm())
	spin := compile(t, h, guest{invoke: seq(loop(br(0)), i32(0))}.wasm())
	detached := make(chan func(), 1)
	var before, after bool

	o := do(t.Context(), h, outer, host.Call{
		Policy:    host.Policy{Grant: host.Grant{Tools: []string{"spin"}}},
		Observers: host.Observers{Admitted: func(detach func()) { detached <- detach }},
		Services: host.Services{CallTool: func(ctx context.Context, c host.ToolCall) (abi.Result, error) {
			ctx, cancel := context.WithCancel(ctx)
			ended := make(chan abi.Result)
			go func() {
				r, _ := h.Call(ctx, spin, host.Call{Caller: c.Caller, Policy: host.Policy{Timeout: time.Hour}})
				ended <- r
			}()
			require.Eventually(t, func() bool { return len(host.InnerBackground(c.Caller)) == 1 }, 2*time.Minute, time.Millisecond)
			before = host.InnerBackground(c.Caller)[0]
			(<-detached)()
			after = host.InnerBackground(c.Caller)[0]
			cancel()
			return <-ended, nil
		}},
	})
	require.NoError(t, o.err)
	require.JSONEq(t, `{"kind":"canceled","error":"context canceled"}`, string(o.Value))
	require.False(t, before)
	require.True(t, after)
}
