package host_test

import (
	"slices"
	"testing"
	"time"
)

// report reports the median of what was measured and the range in which nine
// tenths of it lie, in microseconds.
func report(b *testing.B, name string, d []time.Duration) {
	slices.Sort(d)
	at := func(share float64) float64 {
		return float64(d[int(share*float64(len(d)-1))].Nanoseconds()) / 1e3
	}
	b.ReportMetric(at(0.5), name+"-p50-µs")
	b.ReportMetric(at(0.05), name+"-p5-µs")
	b.ReportMetric(at(0.95), name+"-p95-µs")
}
