package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/pglocal"
	"github.com/toolhost/toolhost/internal/pgtest"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/sqlite"
)

// durable starts a server that syncs its commits, as operators would run it.
func durable(b *testing.B) string {
	c, err := pglocal.Start("shared_buffers=256MB")
	pgtest.Need(b, err)
	b.Cleanup(c.Stop)
	return c.URL
}

func opened(b *testing.B, url string) *Engine {
	e, err := Open(b.Context(), url, Options{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, e.Close()) })
	return e
}

// embedded is an engine in SQLite, which syncs what it commits too.
func embedded(b *testing.B) (*sqlite.Engine, engine.Worker) {
	e, err := sqlite.Open(b.Context(), b.TempDir(), sqlite.Config{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, e.Close()) })
	w, err := e.Join(b.Context(), engine.WorkerInfo{TTL: time.Hour})
	require.NoError(b, err)
	return e, w
}

// each calls do n times, from concurrent callers, and returns the number of calls per second.
func each(b *testing.B, n, callers int, do func(i int) error) float64 {
	var next atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range callers {
		all.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				if err := do(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return float64(n) / time.Since(began).Seconds()
}

// BenchmarkSpawn compares submissions with raw inserts of a row of the same size over the
// same connections, and with SQLite, in turns.
func BenchmarkSpawn(b *testing.B) {
	e := opened(b, durable(b))
	_, err := e.pool.Exec(b.Context(), "CREATE TABLE raw (id text PRIMARY KEY, data bytea)")
	require.NoError(b, err)
	w, err := e.Join(b.Context(), engine.WorkerInfo{TTL: time.Hour})
	require.NoError(b, err)
	_, local := embedded(b)
	ctx := context.Background()
	var id atomic.Int64

	for _, callers := range []int{1, 64} {
		n := 100 + 10*callers
		for _, c := range []struct {
			name    string
			permits *engine.Permits
		}{{"queued", nil}, {"claimed", &engine.Permits{}}, {"permits", &engine.Permits{Session: 5, Owner: 64}}} {
			b.Run(fmt.Sprintf("%s/callers=%d", c.name, callers), func(b *testing.B) {
				var raw, spawned, there float64
				var rawTime, ourTime time.Duration
				for b.Loop() {
					began := processor(b, e)
					raw += each(b, n, callers, func(int) error {
						_, err := e.pool.Exec(ctx, "INSERT INTO raw VALUES ($1, $2)", fmt.Sprint("bg_", id.Add(1)), make([]byte, 1200))
						return err
					})
					between := processor(b, e)
					spawned += each(b, n, callers, func(i int) error {
						n := id.Add(1)
						return w.Submit(ctx, run(fmt.Sprint("bg_", n), fmt.Sprint("s", n/4)), c.permits) // few of a session are active
					})
					rawTime, ourTime = rawTime+between-began, ourTime+processor(b, e)-between
					there += each(b, n, callers, func(i int) error {
						n := id.Add(1)
						return local.Submit(ctx, run(fmt.Sprint("bg_", n), fmt.Sprint("s", n/4)), c.permits)
					})
				}
				b.ReportMetric(raw/float64(b.N), "raw/s")
				b.ReportMetric(spawned/float64(b.N), "spawns/s")
				b.ReportMetric(spawned/raw, "ratio")
				b.ReportMetric(rawTime.Seconds()/ourTime.Seconds(), "cpu-ratio")
				b.ReportMetric(there/float64(b.N), "SQLite/s")
				b.ReportMetric(0, "ns/op")
			})
			_, err := e.pool.Exec(ctx, "DELETE FROM runs")
			require.NoError(b, err)
		}
	}
}

// BenchmarkThrough takes runs from their submission to their end: three engines, as of
// three hosts, claim, start and complete what one of them submits. SQLite does the same on
// one host.
func BenchmarkThrough(b *testing.B) {
	url := durable(b)
	const runs, places = 1000, 16
	var engines []*Engine
	var workers []engine.Worker
	for range 3 {
		e := opened(b, url)
		w, err := e.Join(b.Context(), engine.WorkerInfo{TTL: time.Hour})
		require.NoError(b, err)
		engines, workers = append(engines, e), append(workers, w)
	}
	_, err := engines[0].pool.Exec(b.Context(), "CREATE TABLE raw (id text PRIMARY KEY, data bytea)")
	require.NoError(b, err)
	ctx := context.Background()

	round := 0
	var raw, through, there, wal float64
	var rawTime, ourTime time.Duration
	for b.Loop() {
		began := processor(b, engines[0])
		round++
		raw += each(b, runs, 64, func(i int) error {
			_, err := engines[0].pool.Exec(ctx, "INSERT INTO raw VALUES ($1, $2)", fmt.Sprintf("bg_%d_%d", round, i), make([]byte, 1200))
			return err
		})

		between, before := processor(b, engines[0]), written(b, engines[0])
		through += throughput(b, workers, places, runs, round)
		rawTime, ourTime = rawTime+between-began, ourTime+processor(b, engines[0])-between
		wal += written(b, engines[0]) - before
		_, local := embedded(b)
		there += throughput(b, []engine.Worker{local}, 3*places, runs, round)
	}
	b.ReportMetric(raw/float64(b.N), "raw/s")
	b.ReportMetric(through/float64(b.N), "runs/s")
	b.ReportMetric(through/raw, "ratio")
	b.ReportMetric(rawTime.Seconds()/ourTime.Seconds(), "cpu-ratio")
	b.ReportMetric(wal/float64(runs*b.N)/1000, "WAL-kB/run")
	b.ReportMetric(1000*ourTime.Seconds()/float64(runs*b.N), "cpu-ms/run")
	b.ReportMetric(there/float64(b.N), "SQLite/s")
	b.ReportMetric(0, "ns/op")
}

// throughput lets workers, each with that number of places, execute the runs that the first one
// submits, and returns the number of runs that end per second.
func throughput(b *testing.B, workers []engine.Worker, places, runs, round int) float64 {
	ctx, permits := context.Background(), engine.Permits{Session: 100, Owner: 1000}
	began := time.Now()
	var all sync.WaitGroup
	all.Go(func() {
		each(b, runs, 64, func(i int) error {
			return workers[0].Submit(ctx, run(fmt.Sprintf("bg_%d_%d", round, i), fmt.Sprint("s", i%20)), nil)
		})
	})

	var done atomic.Int64
	for _, w := range workers {
		all.Go(func() {
			for done.Load() < int64(runs) && !b.Failed() {
				claimed, err := w.Claim(ctx, places, permits)
				if err != nil {
					b.Error(err)
					return
				}
				if len(claimed) == 0 {
					time.Sleep(5 * time.Millisecond)
				}
				each(b, len(claimed), places, func(i int) error {
					l, err := w.Start(ctx, claimed[i-1].ID)
					if err == nil {
						_, err = l.Complete(ctx, engine.StatusSucceeded, engine.Beat{}, engine.End{FinishedAt: time.Now()})
					}
					done.Add(1)
					return err
				})
			}
		})
	}
	all.Wait()
	return float64(runs) / time.Since(began).Seconds()
}

// BenchmarkGet compares reading runs with reading raw rows, from 32 callers, and with SQLite.
func BenchmarkGet(b *testing.B) {
	e := opened(b, durable(b))
	_, err := e.pool.Exec(b.Context(), "CREATE TABLE raw (id text PRIMARY KEY, data bytea)")
	require.NoError(b, err)
	w, err := e.Join(b.Context(), engine.WorkerInfo{TTL: time.Hour})
	require.NoError(b, err)
	local, there := embedded(b)
	ctx := context.Background()
	const runs, reads = 1000, 20_000
	each(b, runs, 64, func(i int) error {
		id := fmt.Sprint("bg_", i)
		_, err := e.pool.Exec(ctx, "INSERT INTO raw VALUES ($1, $2)", id, make([]byte, 1200))
		return errors.Join(err, w.Submit(ctx, run(id, "s"), nil), there.Submit(ctx, run(id, "s"), nil))
	})

	var raw, ours, theirs float64
	for b.Loop() {
		raw += each(b, reads, 32, func(i int) error {
			var data []byte
			return e.pool.QueryRow(ctx, "SELECT data FROM raw WHERE id = $1", fmt.Sprint("bg_", 1+i%runs)).Scan(&data)
		})
		ours += each(b, reads, 32, func(i int) error { _, err := e.Get(ctx, fmt.Sprint("bg_", 1+i%runs)); return err })
		theirs += each(b, reads, 32, func(i int) error { _, err := local.Get(ctx, fmt.Sprint("bg_", 1+i%runs)); return err })
	}
	b.ReportMetric(raw/float64(b.N), "raw/s")
	b.ReportMetric(ours/float64(b.N), "gets/s")
	b.ReportMetric(ours/raw, "ratio")
	b.ReportMetric(theirs/float64(b.N), "SQLite/s")
	b.ReportMetric(0, "ns/op")
}
