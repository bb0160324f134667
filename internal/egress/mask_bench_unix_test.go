//go:build unix

package egress

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkMask masks 10 MB of texts that are made to be slow, with few secrets and many.
// Without a secret nothing is done.
func BenchmarkMask(b *testing.B) {
	for _, set := range benchmarkSecrets() {
		m := maskerOf(set.values)
		texts := hostileTexts(set.values)
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			b.Run(set.name+"/"+name, func(b *testing.B) {
				text := bytes.Repeat([]byte(texts[name]), 10_000_000/len(texts[name]))
				b.SetBytes(int64(len(text)))
				begin := processorTime(b)
				for b.Loop() {
					_, err := m.within(b.Context(), text, math.MaxInt64)
					require.NoError(b, err)
				}
				b.ReportMetric(float64((processorTime(b)-begin).Microseconds())/1e3/float64(b.N), "cpu-ms/10MB")
			})
		}
	}
}

// BenchmarkMaskSecrets prepares the pass, as each call with a secret does.
func BenchmarkMaskSecrets(b *testing.B) {
	for _, set := range benchmarkSecrets() {
		b.Run(set.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				maskerOf(set.values)
			}
		})
	}
}

type secretSet struct {
	name   string
	values []string
}

func benchmarkSecrets() []secretSet {
	return []secretSet{
		{"1", []string{"s3cr3t-Token/+Value.42"}},
		{"3", []string{"s3cr3t-Token/+Value.42", "sk-proj-4fAb12ZzQ0aaaaaaaaaaaaaaaaaaab", `p\xe4ssw&%rt!~1/x`}},
		{"100", manySecrets(100, "")},
		{"100-alike", manySecrets(100, "sk-ant-api03-")},
	}
}

// processorTime is what the process has used.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
