//go:build unix

package sqlite

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// BenchmarkFacets measures the processor time of runs up to their end and, in turns, that of
// writing the columns by which the same number of runs are searched, with as many in one commit.
// It reports the share of the latter.
func BenchmarkFacets(b *testing.B) {
	const callers, slice = 64, 640
	e := benchEngine(b)
	var all, facets time.Duration
	seq := int64(1) << 40
	for done := 0; done < b.N; done += slice {
		n := min(slice, b.N-done)
		began := cpu()
		spread(callers, n, func() error { return wholeRun(b, e) })
		between := cpu()
		for written := 0; written < n; written += callers {
			require.NoError(b, writeFacets(b, e, seq, min(callers, n-written)))
			seq += callers
		}
		all, facets = all+between-began, facets+cpu()-between
	}
	b.ReportMetric(float64(all.Microseconds())/float64(b.N), "cpu-µs/run")
	b.ReportMetric(float64(facets)/float64(all), "share")
	b.ReportMetric(0, "ns/op") // of both: says nothing
}

func writeFacets(b *testing.B, e *tester, seq int64, n int) error {
	return e.db.write(b.Context(), func(w *conn) (err error) {
		for i := range int64(n) {
			if err == nil {
				err = addFacets(w, seq+i, benchRun())
			}
		}
		return err
	})
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

// BenchmarkWaiting measures 100,000 runs that wait: memory, a restart, and then what it
// takes until one that is due is running again with its state.
func BenchmarkWaiting(b *testing.B) {
	const runs = 100_000
	dir := b.TempDir()
	e := opened(b, dir)
	before := heap()
	state, due := make([]byte, 2000), time.Now()
	var next atomic.Int64
	spread(64, runs, func() error {
		run := benchRun()
		l, err := e.Adopt(b.Context(), run)
		if err == nil {
			_, err = l.Suspend(b.Context(), engine.Suspension{State: state, Wake: due.Add(time.Duration(next.Add(1)) * time.Hour)})
		}
		return err
	})
	memory := heap() - before
	require.NoError(b, e.Close())

	began, used := time.Now(), cpu()
	e = opened(b, dir)
	restart, worked := time.Since(began), cpu()-used
	n := 0
	for b.Loop() {
		n++
		woken, _, err := e.worker.Wake(b.Context(), due.Add(time.Duration(n)*time.Hour), 1)
		require.NoError(b, err)
		require.Equal(b, 1, woken)
		claimed, err := e.worker.Claim(b.Context(), 1, engine.Permits{})
		require.NoError(b, err)
		_, err = e.worker.Start(b.Context(), claimed[0].ID)
		require.NoError(b, err)
	}
	b.ReportMetric(float64(memory)/(1<<20), "MB")
	b.ReportMetric(float64(restart.Milliseconds()), "restart-ms")
	b.ReportMetric(float64(worked.Milliseconds()), "restart-cpu-ms")
}
