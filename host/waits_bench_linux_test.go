package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/examples/plugins/script"
	"github.com/toolhost/toolhost/host"
)

// BenchmarkScript is what scripts cost that wait: a clean start to the first wait of
// twenty lines, a wait for a tool that does nothing, and giving up and taking back an
// instance. A stretch that continues from a state ends at the next wait.
func BenchmarkScript(b *testing.B) {
	wasm, err := script.FS.ReadFile("exec.wasm")
	require.NoError(b, err)
	h := newHost(b, nil)
	m := compile(b, h, wasm)
	call := func(code string) host.Call {
		args, err := json.Marshal(map[string]string{"code": code})
		require.NoError(b, err)
		return host.Call{
			Traits: host.Traits{Plugin: "exec"}, Tool: "exec", ID: "call_1", Args: args,
			Policy: host.Policy{Timeout: time.Hour, Grant: host.Grant{Clock: true, Tools: []string{abi.EveryTool}}},
			Services: host.Services{CallTool: func(context.Context, host.ToolCall) (abi.Result, error) {
				return abi.Result{Kind: abi.Success, Value: json.RawMessage("1")}, nil
			}},
		}
	}
	lines := strings.Repeat("const f = async (x) => { if (x > 1) return x * 2; return `${x}`; };\n{ const all = [1, 2, 3].map(f); }\n", 1) + strings.Repeat("{ const o = { a: 1, b: [2, 3] }; o.c = JSON.stringify(o); }\n", 18)

	b.Run("start", func(b *testing.B) {
		began := processorTime(b)
		for b.Loop() {
			_, err := h.Call(b.Context(), m, call(lines+"return 1"))
			require.NoError(b, err)
		}
		b.ReportMetric(float64((processorTime(b)-began).Microseconds())/float64(b.N), "cpu-µs")
	})
	b.Run("tools", func(b *testing.B) {
		began := processorTime(b)
		for b.Loop() {
			_, err := h.Call(b.Context(), m, call("for (let i = 0; i < 900; i++) await tools.nothing(); return 1"))
			require.NoError(b, err)
		}
		b.ReportMetric(float64((processorTime(b)-began).Microseconds())/float64(b.N)/900, "cpu-µs/tool")
	})

	var kept []byte
	waits := call(lines + "for (;;) await sleep(3_000_000)")
	keep := func(k host.SavedState) error { kept = k.State; return nil }
	waits.Suspend = &keeper{keep: keep}
	b.Run("suspend", func(b *testing.B) {
		began := processorTime(b)
		for b.Loop() {
			_, err := h.Call(b.Context(), m, waits)
			require.True(b, errors.Is(err, host.ErrSuspended))
		}
		b.ReportMetric(float64((processorTime(b)-began).Microseconds())/float64(b.N), "cpu-µs")
		b.ReportMetric(float64(len(kept)), "state-bytes")
	})
	b.Run("continue", func(b *testing.B) {
		again := waits
		again.Continue = kept
		again.Suspend = &keeper{keep: keep, pressed: true} // it is suspended again although nothing has ended
		began := processorTime(b)
		for b.Loop() {
			_, err := h.Call(b.Context(), m, again)
			require.True(b, errors.Is(err, host.ErrSuspended))
		}
		b.ReportMetric(float64((processorTime(b)-began).Microseconds())/float64(b.N), "cpu-µs")
	})
}
