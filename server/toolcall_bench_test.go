package server

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
)

// BenchmarkToolCall measures a call that calls another tool once, next to two calls of an
// agent in the same run, of which the first is of the same plugin.
func BenchmarkToolCall(b *testing.B) {
	s := openCallers(b, Config{}, map[string]aCaller{
		"caller": {program: plugintest.Do().Request("tool.call", toolRequest("plain", `{"n":1}`)).Echo(), may: []string{"plain"}},
		"alone":  {program: plugintest.Do().Request("report", toolRequest("plain", `{"n":1}`)).Echo()},
	}, "plain")
	call := func(tool string) time.Duration {
		began := time.Now()
		r, err := s.Call(b.Context(), Request{Session: alice, Tool: tool, Args: json.RawMessage(`{"n":1}`), Limits: Limits{Timeout: time.Minute}})
		require.NoError(b, err)
		require.Equal(b, abi.Success, r.Kind)
		return time.Since(began)
	}

	for _, tool := range []string{"caller", "alone", "plain"} {
		call(tool)
	}
	var one, two time.Duration
	for b.Loop() {
		one += call("caller")
		two += call("alone") + call("plain")
	}
	b.ReportMetric(float64(one.Microseconds())/float64(b.N), "tool.call-µs")
	b.ReportMetric(float64(two.Microseconds())/float64(b.N), "two-calls-µs")
	b.ReportMetric(float64(one)/float64(two), "ratio")
	b.ReportMetric(0, "ns/op") // of all of them: says nothing
}
