package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// BenchmarkManager measures a whole Manager over the engine, by turns with the
// raw group commits of BenchmarkSubmit: spawns (the run is started too, and
// stays), checks of running runs, and of runs that have ended.
func BenchmarkManager(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("spawn/callers=%d", callers), func(b *testing.B) {
			m := benchManager(b, func(ctx context.Context, _ engine.Run, _ *output.Sink) (background.Outcome, error) {
				<-ctx.Done()
				return background.Outcome{}, ctx.Err()
			})
			raw := newRawCommits(b)
			var ours, theirs time.Duration
			const slice = 1000
			for done := 0; done < b.N; done += slice {
				n := min(slice, b.N-done)
				ours += spread(callers, n, func() error { _, err := m.Spawn(b.Context(), "s", benchSpawn); return err })
				theirs += spread(callers, n, func() error { return raw.insert(benchRun()) })
			}
			perSecond, baseline := float64(b.N)/ours.Seconds(), float64(b.N)/theirs.Seconds()
			b.ReportMetric(perSecond, "spawns/s")
			b.ReportMetric(baseline, "raw/s")
			b.ReportMetric(perSecond/baseline, "of-raw")
			b.ReportMetric(0, "ns/op")
		})
	}
	for _, ended := range []bool{false, true} {
		b.Run(fmt.Sprintf("check/ended=%t", ended), func(b *testing.B) { benchChecks(b, ended) })
	}
}

var benchSpawn = background.SpawnRequest{Tool: "primes", Args: json.RawMessage(`{"limit":1000000,"format":"json","path":"/data/primes"}`)}

func benchManager(b *testing.B, work background.Executor) *background.Manager {
	const many = 1 << 30
	m, err := background.New(b.Context(), background.Config{Executor: work, Engine: bareBench(b), PerSession: many, PerHost: many, RetainRuns: many, RecordQuota: 1 << 40})
	require.NoError(b, err)
	b.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(b, m.Close(now))
	})
	return m
}

func benchChecks(b *testing.B, ended bool) {
	m := benchManager(b, func(ctx context.Context, _ engine.Run, sink *output.Sink) (background.Outcome, error) {
		for i := range 100 {
			_, _ = fmt.Fprintf(sink.Stdout(), "line %d of the output\n", i)
		}
		if !ended {
			<-ctx.Done()
		}
		return background.Outcome{Result: json.RawMessage(`{"count":78498}`)}, nil
	})
	var ids []string
	for range 100 {
		run, err := m.Spawn(b.Context(), "s", benchSpawn)
		require.NoError(b, err)
		ids = append(ids, run.ID)
	}
	if ended {
		for some := range slices.Chunk(ids, background.MaxIDs) {
			_, err := m.Check(b.Context(), "s", background.CheckRequest{IDs: some, Wait: time.Minute, Until: background.UntilAll})
			require.NoError(b, err)
		}
	}
	var next atomic.Int64
	b.ResetTimer()
	took := spread(2, b.N, func() error {
		id := ids[next.Add(1)%int64(len(ids))]
		_, err := m.Check(b.Context(), "s", background.CheckRequest{IDs: []string{id}})
		return err
	})
	b.ReportMetric(float64(b.N)/took.Seconds(), "checks/s")
	b.ReportMetric(0, "ns/op")
}
