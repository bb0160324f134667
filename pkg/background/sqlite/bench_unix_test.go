//go:build unix

package sqlite

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// BenchmarkLive measures what 10,000 live runs cost: memory, and processor
// time of heartbeats every two seconds with something new in each.
func BenchmarkLive(b *testing.B) {
	e := benchEngine(b)
	const runs = 10_000
	before := heap()
	leases := make([]engine.Lease, runs)
	var next atomic.Int64
	spread(64, runs, func() (err error) {
		i := next.Add(1) - 1
		leases[i], err = e.Adopt(b.Context(), benchRun())
		return err
	})
	b.ReportMetric(float64(heap()-before)/(1<<20), "MB")
	used := cpu()
	b.ResetTimer()
	for i := range b.N {
		for k, l := range leases {
			if err := l.Report(b.Context(), engine.Beat{Detail: "working", Progress: &engine.Progress{Done: float64(i), Total: 1e9}, OutputBytes: int64(i * k)}); err != nil {
				b.Fatal(err)
			}
		}
		if i%5 == 4 { // every ten seconds
			e.keeper.storeBeats(b.Context())
		}
	}
	b.ReportMetric((cpu()-used).Seconds()/(2*float64(b.N)), "cores")
	b.ReportMetric(float64(heap()-before)/(1<<20), "MB")
	runtime.KeepAlive(leases)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
