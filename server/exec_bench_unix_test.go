//go:build unix

package server

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

// BenchmarkScripts measures, in processor time, scripts and direct calls in turn: a
// script of twenty lines that calls nothing, the wait for a tool that answers at once,
// and twenty calls to that tool by a script and one by one.
func BenchmarkScripts(b *testing.B) {
	s := openScripts(b, Config{})
	do := func(tool, args string) time.Duration {
		before := processorTime(b)
		r := s.call("a", tool, args)
		used := processorTime(b) - before
		require.Equal(b, abi.Success, r.Kind, r.Error)
		return used
	}

	const direct = `{"text":"a b c"}`
	lines := strings.Repeat("const f = (text) => text.split(' ').map(w => w.toUpperCase()).join('-');\nawait 0;\n", 1) + strings.Repeat("{ const row = {a: f('x y z'), b: [1, 2, 3].map(n => n * n)}; if (row.b[2] !== 9) throw new Error('9'); }\n", 17)
	calls := func(n int) string {
		return string(code(fmt.Sprintf("%sfor (let i = 0; i < %d; i++) await tools.count({text: 'a b c'});\nreturn 1", lines, n)))
	}
	const many = 500
	none, one, twenty, all := calls(0), calls(1), calls(20), calls(many)
	typed := string(code("const a: number = 1;\n" + lines + "return a"))
	do("exec", all)

	var tool, empty, script, tools, awaits, types time.Duration
	for b.Loop() {
		for range 20 {
			tool += do("count", direct)
		}
		empty += do("exec", none)
		script += do("exec", one)
		tools += do("exec", twenty)
		awaits += do("exec", all)
		types += do("exec", typed)
	}

	us := func(d time.Duration, n int) float64 {
		return float64(d.Nanoseconds()) / 1000 / float64(b.N) / float64(n)
	}
	b.ReportMetric(us(tool, 20), "call-µs")
	b.ReportMetric(us(empty, 1), "script-µs")
	b.ReportMetric(us(script, 1), "script-of-one-call-µs")
	b.ReportMetric(us(awaits-empty, many), "await-µs")
	b.ReportMetric(float64(awaits-empty)/many/(float64(tool)/20), "await/call")
	b.ReportMetric(us(tools, 1), "script-of-20-calls-µs")
	b.ReportMetric(float64(tools)/float64(tool), "script-of-20/20-calls")
	b.ReportMetric(us(types, 1), "TypeScript-µs")
	b.ReportMetric(0, "ns/op") // of all of them: says nothing
}

// processorTime is what this process has taken.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
