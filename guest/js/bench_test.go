package js_test

import (
	"bytes"
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/guest/js"
	"github.com/toolhost/toolhost/host"
)

const counts = `const { tool } = globalThis.toolhost;
export const plugin = { name: 'words', description: 'Counts words.' };
export const count = tool({ description: 'Counts.', input: { text: 'string' } }, async ({ text }) => ({ words: text.split(/\s+/).length }));
export const again = tool({ description: 'Counts many times.', input: { text: 'string' } }, async ({ text }) => {
  let words = 0;
  for (let i = 0; i < 1000; i++) words += await (async ({ text }) => ({ words: text.split(/\s+/).length }))(JSON.parse(JSON.stringify({ text }))).then((r) => r.words);
  return words;
});`

// BenchmarkCall measures calls of a JavaScript tool, each in a clean instance, against
// what the work of one takes within a call: the baseline in the same process.
func BenchmarkCall(b *testing.B) {
	h := newHost(b, new(bytes.Buffer))
	m, err := h.Compile(context.Background(), js.Plugin([]byte(counts)))
	require.NoError(b, err)
	call := func(tool string) time.Duration {
		started := time.Now()
		r, err := h.Call(context.Background(), m, host.Call{Tool: tool, Args: []byte(`{"text":"one two three four"}`)})
		require.NoError(b, err)
		require.True(b, r.IsSuccess(), r.Error)
		return time.Since(started)
	}
	call("count")

	var clean, within []time.Duration
	for b.Loop() {
		clean = append(clean, call("count"))
		if len(clean)%100 == 0 {
			within = append(within, call("again")/1000)
		}
	}
	if len(within) == 0 {
		within = append(within, call("again")/1000)
	}
	b.ReportMetric(microseconds(clean), "µs-p50")
	b.ReportMetric(microseconds(within), "µs-within")
	b.ReportMetric(microseconds(clean)/microseconds(within), "ratio")
}

// BenchmarkNewScript measures what passes between a script that was saved and its first
// result, where the runtime is compiled: digest, load, start-up, call.
func BenchmarkNewScript(b *testing.B) {
	h := newHost(b, new(bytes.Buffer))
	name := b.TempDir() + "/words.wasm"
	serve := func() time.Duration {
		require.NoError(b, os.WriteFile(name, js.Plugin(append([]byte(counts), "\n// "+time.Now().String()...)), 0o600))
		started := time.Now()
		wasm, err := os.ReadFile(name)
		require.NoError(b, err)
		m, err := h.Compile(context.Background(), wasm)
		require.NoError(b, err)
		_, err = h.Call(context.Background(), m, host.Call{Tool: "count", Args: []byte(`{"text":"one two"}`)})
		require.NoError(b, err)
		took := time.Since(started)
		require.NoError(b, m.Close(context.Background()))
		return took
	}
	serve()

	var all []time.Duration
	for b.Loop() {
		all = append(all, serve())
	}
	b.ReportMetric(microseconds(all)/1000, "ms-p50")
}

// microseconds is the median.
func microseconds(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2]) / float64(time.Microsecond)
}
