package postgres

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// A usage is what a server has done so far.
type usage struct {
	at      time.Time
	commits int64
	wal     float64 // bytes
}

func used(b *testing.B, e *Engine) (u usage) {
	time.Sleep(1100 * time.Millisecond) // connections report what they did each second
	err := e.pool.QueryRow(b.Context(), "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()").Scan(&u.commits)
	require.NoError(b, err)
	u.wal, u.at = written(b, e), time.Now()
	return u
}

// written returns the number of bytes of WAL that a server has written so far.
func written(b *testing.B, e *Engine) (wal float64) {
	require.NoError(b, e.pool.QueryRow(b.Context(), "SELECT (pg_current_wal_lsn() - '0/0')::float8").Scan(&wal))
	return wal
}

// reportSince reports what the server has done per second since u.
func (u usage) reportSince(b *testing.B, e *Engine) {
	now := used(b, e)
	seconds := now.at.Sub(u.at).Seconds()
	b.ReportMetric(float64(now.commits-u.commits)/seconds, "commits/s")
	b.ReportMetric((now.wal-u.wal)/seconds/1000, "WAL-kB/s")
	b.ReportMetric(0, "ns/op")
}

// processor returns the processor time that this process and those of the server have used so
// far, according to /proc; 0 on systems without it.
func processor(b *testing.B, e *Engine) (sum time.Duration) {
	rows, err := e.pool.Query(b.Context(), "SELECT pid::text FROM pg_stat_activity")
	require.NoError(b, err)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b, err)
	for _, pid := range append(pids, "self") {
		stat, _ := os.ReadFile("/proc/" + pid + "/stat")
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		for i := 11; i < min(13, len(fields)); i++ { // utime and stime, in hundredths of a second
			ticks, err := strconv.Atoi(fields[i])
			require.NoError(b, err)
			sum += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return sum
}

// noise returns data that does not become smaller when it is compressed.
func noise(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	return base64.StdEncoding.AppendEncode(nil, data)[:n]
}

// BenchmarkOutput measures the cost of the output of one host: that of 64 runs that write a line
// every 10 ms, and that of 16 runs that write 64 KiB every 10 ms and have written more than is
// kept.
func BenchmarkOutput(b *testing.B) {
	for _, c := range []struct {
		name  string
		runs  int
		write []byte
	}{
		{"lines", 64, noise(63)},
		{"flood", 16, noise(64 << 10)},
	} {
		b.Run(c.name, func(b *testing.B) {
			e := opened(b, durable(b))
			running := make(chan struct{}, c.runs)
			m, err := background.New(b.Context(), background.Config{
				Engine: e, PerSession: c.runs, PerHost: c.runs,
				Executor: func(ctx context.Context, _ engine.Run, sink *output.Sink) (background.Outcome, error) {
					for first := true; ; first = false {
						_, _ = sink.Stdout().Write(append(c.write, '\n'))
						if first {
							running <- struct{}{}
						}
						select {
						case <-ctx.Done():
							return background.Outcome{}, context.Cause(ctx)
						case <-time.After(10 * time.Millisecond):
						}
					}
				},
			})
			require.NoError(b, err)
			for range c.runs {
				_, err := m.Spawn(b.Context(), "s", background.SpawnRequest{Tool: "writer", Silent: true})
				require.NoError(b, err)
			}
			for range c.runs {
				<-running
			}

			for b.Loop() {
				before := used(b, e)
				time.Sleep(5 * time.Second)
				before.reportSince(b, e)
			}
			ended, cancel := context.WithCancel(b.Context())
			cancel()
			require.NoError(b, m.Close(ended))
		})
	}
}

// hosts returns Managers with engines of their own, as on several machines.
func hosts(b *testing.B, n int, do background.Executor) (engines []*Engine, managers []*background.Manager) {
	url := durable(b)
	for range n {
		e := opened(b, url)
		m, err := background.New(b.Context(), background.Config{Engine: e, PerSession: 100, PerHost: 100, LeaseTTL: time.Minute, Executor: do})
		require.NoError(b, err)
		engines, managers = append(engines, e), append(managers, m)
		b.Cleanup(func() {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			require.NoError(b, m.Close(ended))
		})
	}
	return engines, managers
}

// percentiles reports the median of delays and the 99th percentile, in milliseconds.
func percentiles(b *testing.B, delays []time.Duration) {
	slices.Sort(delays)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(delays[len(delays)*p/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", p))
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRemoteStop measures the time from a stop at one host until the work at another one is
// asked to end.
func BenchmarkRemoteStop(b *testing.B) {
	ended, began := make(chan time.Time, 1), make(chan struct{}, 1)
	_, managers := hosts(b, 2, func(ctx context.Context, _ engine.Run, _ *output.Sink) (background.Outcome, error) {
		began <- struct{}{}
		<-ctx.Done()
		ended <- time.Now()
		return background.Outcome{}, context.Cause(ctx)
	})

	var delays []time.Duration
	for b.Loop() {
		run, err := managers[0].Spawn(b.Context(), "s", background.SpawnRequest{Tool: "sleep", Silent: true})
		require.NoError(b, err)
		<-began
		asked := time.Now()
		_, err = managers[1].Stop(b.Context(), "s", run.ID, background.StopRequest{Force: true})
		require.NoError(b, err)
		delays = append(delays, (<-ended).Sub(asked))
	}
	percentiles(b, delays)
}

// BenchmarkRemoteTail measures the time from the writing of a line at one host until it is read
// at another one, by a reader that follows events.
func BenchmarkRemoteTail(b *testing.B) {
	written := make(chan time.Time, 1)
	lines := make(chan struct{})
	_, managers := hosts(b, 2, func(ctx context.Context, _ engine.Run, sink *output.Sink) (background.Outcome, error) {
		for range lines {
			written <- time.Now()
			_, _ = fmt.Fprintln(sink.Stdout(), "a line")
		}
		return background.Outcome{}, nil
	})
	run, err := managers[0].Spawn(b.Context(), "s", background.SpawnRequest{Tool: "writer", Silent: true})
	require.NoError(b, err)
	events := managers[1].Watch(b.Context(), "s")

	var delays []time.Duration
	var at int64
	for b.Loop() {
		time.Sleep(time.Duration(50+len(delays)%50) * time.Millisecond) // lines come at any time
		lines <- struct{}{}
		from := <-written
		for before := at; at == before; {
			<-events
			chunk, err := managers[1].Tail(b.Context(), "s", run.ID, at, 1000)
			require.NoError(b, err)
			at = chunk.End
		}
		delays = append(delays, time.Since(from))
	}
	close(lines)
	percentiles(b, delays)
}

// BenchmarkIdle measures the cost of three hosts without work.
func BenchmarkIdle(b *testing.B) {
	engines, _ := hosts(b, 3, func(context.Context, engine.Run, *output.Sink) (background.Outcome, error) {
		return background.Outcome{}, nil
	})
	for b.Loop() {
		before := used(b, engines[0])
		time.Sleep(20 * time.Second)
		before.reportSince(b, engines[0])
	}
}

// BenchmarkRunning measures the cost of the heartbeats of 10,000 running runs of a host, one in
// 100 of which reports something new.
func BenchmarkRunning(b *testing.B) {
	const runs = 10_000
	e := opened(b, durable(b))
	w, err := e.Join(b.Context(), engine.WorkerInfo{TTL: time.Hour})
	require.NoError(b, err)
	var mu sync.Mutex
	held := map[string]engine.Beat{}
	each(b, runs, 64, func(i int) error {
		r := run(fmt.Sprint("bg_", i), fmt.Sprint("s", i%100))
		_, err := w.Adopt(context.Background(), r, engine.Permits{})
		mu.Lock()
		defer mu.Unlock()
		held[r.ID] = engine.Beat{}
		return err
	})
	_, err = w.Renew(b.Context(), held)
	require.NoError(b, err)

	var took time.Duration
	n := 0
	before := used(b, e)
	for b.Loop() {
		for range 10 { // heartbeats, one each two seconds
			n++
			for i := range runs / 100 {
				held[fmt.Sprint("bg_", 1+(i*97+n)%runs)] = engine.Beat{Detail: fmt.Sprint("step ", n)}
			}
			began := time.Now()
			_, err := w.Renew(b.Context(), held)
			require.NoError(b, err)
			took += time.Since(began)
		}
	}
	after := used(b, e)
	b.ReportMetric(took.Seconds()*1000/float64(n), "ms/heartbeat")
	b.ReportMetric((after.wal-before.wal)/float64(n)/2/1000, "WAL-kB/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkKept compares the speed of operations with and without 200,000 ended runs in the
// database.
func BenchmarkKept(b *testing.B) {
	const runs = 200_000
	e := opened(b, durable(b))
	w, err := e.Join(b.Context(), engine.WorkerInfo{TTL: time.Hour})
	require.NoError(b, err)
	ctx, n := context.Background(), 0
	rates := func() (spawns, gets, lists float64) {
		spawns = each(b, 500, 16, func(int) error {
			return w.Submit(ctx, run(fmt.Sprint("bg_", rand.Uint64()), fmt.Sprint("s", rand.IntN(100))), &engine.Permits{Session: 10_000})
		})
		gets = each(b, 5000, 16, func(int) error { _, err := e.Get(ctx, "bg_first"); return err })
		lists = each(b, 200, 4, func(int) error { _, err := e.List(ctx, engine.Query{Session: "s1", Limit: 50}); return err })
		return spawns, gets, lists
	}
	l, err := w.Adopt(ctx, run("bg_first", "s0"), engine.Permits{})
	require.NoError(b, err)
	_, err = l.Complete(ctx, engine.StatusSucceeded, engine.Beat{}, engine.End{FinishedAt: time.Now(), Result: []byte(`{"primes":25}`)})
	require.NoError(b, err)

	for b.Loop() {
		n++
		spawns, gets, _ := rates()
		_, err := e.pool.Exec(ctx, `INSERT INTO runs (id, session, owner, tool, version, kind, plugin, created, parked, held, status, woken, attempt, epoch, turn, stop, started, finished, notice, size, search, beat, record, result)
			SELECT 'bg_' || $1 || '_' || i, 's' || i % 100, 's' || i % 100, tool, version, kind, plugin, created, parked, held, status, woken, attempt, epoch, turn, stop, started, finished - i * 1000000::bigint, notice, size, search, beat, record, result
			FROM runs, generate_series(1, $2) i WHERE id = 'bg_first'`, fmt.Sprint(n), runs)
		require.NoError(b, err)
		var size float64
		require.NoError(b, e.pool.QueryRow(ctx, "SELECT pg_total_relation_size('runs')").Scan(&size))
		b.ReportMetric(size/runs, "bytes/run")

		besides, gotten, listed := rates()
		b.ReportMetric(besides/spawns, "spawn-ratio")
		b.ReportMetric(gotten/gets, "get-ratio")
		b.ReportMetric(4*1000/listed, "ms/list") // of 50, by 4 callers
		began := time.Now()
		removed, err := e.Prune(ctx, engine.Retention{Before: time.Now().Add(-runs / 10 * 9 * time.Millisecond)})
		require.NoError(b, err)
		b.ReportMetric(float64(removed)/time.Since(began).Seconds(), "pruned/s")
	}
	b.ReportMetric(0, "ns/op")
}
