//go:build unix

package background

import (
	"context"
	"fmt"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// BenchmarkLiveRuns keeps 10,000 runs alive for some heartbeats. It measures the memory
// that each takes besides its output, and the share of a core that all of them take
// together.
func BenchmarkLiveRuns(b *testing.B) {
	const n = 10_000
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		m := newBench(b, Config{Executor: func(ctx context.Context, _ engine.Run, _ *output.Sink) (Outcome, error) {
			<-ctx.Done()
			return Outcome{}, ctx.Err()
		}})
		for i := range n {
			must(m.Spawn(b.Context(), fmt.Sprint(i%100), SpawnRequest{Tool: "tool", Silent: true}))
		}
		time.Sleep(HeartbeatEvery)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.StackInuse-before.StackInuse)/n, "stackB/run")
		b.ReportMetric(float64(after.HeapInuse+after.StackInuse-before.HeapInuse-before.StackInuse)/n, "B/run")
		const held = 3 * HeartbeatEvery
		busy := cpuTime(b)
		time.Sleep(held)
		b.ReportMetric((cpuTime(b)-busy).Seconds()/held.Seconds(), "cores")
	}
}

// cpuTime returns the processor time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
