package python_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest/python"
	"github.com/toolhost/toolhost/host"
)

// BenchmarkNewScript measures from a script that nobody has seen to the answer of its
// first call, on a host that has another plugin in Python, in parts: the module is packed, loaded,
// and called, which starts Python.
func BenchmarkNewScript(b *testing.B) {
	w := newWorld(b)
	const script = `
from toolhost import plugin, tool
plugin("new", description="New.")

@tool
def f() -> int:
    "Returns a number."
    return %d
`
	parts := []string{"pack", "load", "call", "all"}
	took := map[string][]time.Duration{}
	n := 0
	serve := func() {
		begin := time.Now()
		last := begin
		lap := func(part string) {
			took[part] = append(took[part], time.Since(last))
			last = time.Now()
		}
		n++
		wasm, err := python.Plugin(fstest.MapFS{"tool.py": {Data: fmt.Appendf(nil, script, n)}})
		require.NoError(b, err)
		lap("pack")
		m, err := w.Compile(context.Background(), wasm)
		require.NoError(b, err)
		lap("load")
		r, err := w.Host.Call(context.Background(), m, host.Call{Traits: host.Traits{Plugin: "new"}, Tool: "f", Args: []byte("{}")})
		require.NoError(b, err)
		require.Equal(b, abi.Success, r.Kind, r.Error)
		lap("call")
		took["all"] = append(took["all"], last.Sub(begin))
		if n > 1 {
			require.NoError(b, m.Close(context.Background()))
		}
	}
	serve() // compiles
	clear(took)
	for b.Loop() {
		serve()
	}
	b.ReportMetric(0, "ns/op")
	for _, part := range parts {
		d := took[part]
		slices.Sort(d)
		b.ReportMetric(float64(d[len(d)/2].Microseconds())/1e3, part+"-p50-ms")
		b.ReportMetric(float64(d[len(d)*19/20].Microseconds())/1e3, part+"-p95-ms")
	}
}
