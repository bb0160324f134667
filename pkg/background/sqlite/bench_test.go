package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

func bareBench(b *testing.B) *Engine {
	b.Helper()
	e, err := Open(b.Context(), b.TempDir(), Config{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, e.Close()) })
	return e
}

func benchEngine(b *testing.B) *tester {
	b.Helper()
	t := &tester{Engine: bareBench(b)}
	t.limit(b, engine.Quota{})
	return t
}

var benchIDs atomic.Int64

func benchRun() engine.Run {
	n := benchIDs.Add(1)
	return engine.Run{
		ID: fmt.Sprintf("bg_%026x", uint64(n)*0x9e3779b97f4a7c15), Session: fmt.Sprintf("session-%d", n%1000), Tool: "primes",
		Args: json.RawMessage(`{"limit":1000000,"format":"json","path":"/data/primes"}`), Title: "Background primes",
		Origin: engine.OriginSpawned, SignalOnCompletion: true, Version: "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		Timeout: time.Minute, OutputCap: 256 << 10, CreatedAt: time.Now(), Status: engine.StatusQueued,
	}
}

// BenchmarkSubmit measures durable spawns per second, and, in the same run and
// by turns, raw group commits: the same records in a table of id and record,
// one insert each, committed together by one goroutine for the same number of
// callers.
func BenchmarkSubmit(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			e := benchEngine(b)
			raw := newRawCommits(b)
			var ours, theirs time.Duration
			const slice = 2000
			for done := 0; done < b.N; done += slice {
				n := min(slice, b.N-done)
				ours += spread(callers, n, func() error { return e.Submit(b.Context(), benchRun()) })
				theirs += spread(callers, n, func() error { return raw.insert(benchRun()) })
			}
			perSecond, baseline := float64(b.N)/ours.Seconds(), float64(b.N)/theirs.Seconds()
			b.ReportMetric(perSecond, "spawns/s")
			b.ReportMetric(baseline, "raw/s")
			b.ReportMetric(perSecond/baseline, "of-raw")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// spread calls f n times from a number of goroutines, and returns how long
// that took.
func spread(callers, n int, f func() error) time.Duration {
	var left atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	start := time.Now()
	for range callers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := f(); err != nil {
					panic(err)
				}
			}
		})
	}
	all.Wait()
	return time.Since(start)
}

// rawCommits is the baseline of BenchmarkSubmit.
type rawCommits struct {
	ops chan rawOp
}

type rawOp struct {
	id     string
	record []byte
	done   chan error
}

func newRawCommits(b *testing.B) *rawCommits {
	path := filepath.Join(b.TempDir(), "raw.db")
	require.NoError(b, os.WriteFile(path, nil, 0o600))
	c, err := connect(path, "rw")
	require.NoError(b, err)
	require.NoError(b, c.script("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE raw (id TEXT PRIMARY KEY, record BLOB)"))
	r := &rawCommits{ops: make(chan rawOp, maxBatch)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for o := range r.ops {
			r.commit(c, o)
		}
	}()
	b.Cleanup(func() { close(r.ops); <-ended; _ = c.close() })
	return r
}

func (r *rawCommits) commit(c *conn, o rawOp) {
	batch := []rawOp{o}
	runtime.Gosched()
	for more := true; more && len(batch) < maxBatch; {
		select {
		case o := <-r.ops:
			batch = append(batch, o)
		default:
			more = false
		}
	}
	err := c.run("BEGIN IMMEDIATE")
	for _, o := range batch {
		if err == nil {
			err = c.run("INSERT INTO raw VALUES (?, ?)", o.id, o.record)
		}
	}
	if err == nil {
		err = c.run("COMMIT")
	}
	for _, o := range batch {
		o.done <- err
	}
}

func (r *rawCommits) insert(run engine.Run) error {
	record, err := json.Marshal(run)
	if err != nil {
		return err
	}
	o := rawOp{run.ID, record, make(chan error, 1)}
	r.ops <- o
	return <-o.done
}

// BenchmarkGet measures checks per second, of runs that have ended with a
// small result.
func BenchmarkGet(b *testing.B) {
	e := benchEngine(b)
	ids := fill(b, e, 1000)
	b.ReportAllocs()
	b.ResetTimer()
	start := time.Now()
	var next atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := e.Engine.Get(b.Context(), ids[next.Add(1)%1000]); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "gets/s")
}

// BenchmarkOpen measures how long it takes to open a directory with 200,000
// ended runs, how much of that is the check of the database, and how much longer the check
// of a restore takes.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	path := filepath.Join(dir, databaseName)
	e, err := Open(b.Context(), dir, Config{})
	require.NoError(b, err)
	fill(b, &tester{Engine: e}, 200_000)
	require.NoError(b, e.Close())
	var quick, whole time.Duration
	timed := func(check string) time.Duration {
		start := time.Now()
		_, err := inspectFile(path, check)
		require.NoError(b, err)
		return time.Since(start)
	}
	b.ResetTimer()
	for range b.N {
		e, err := Open(b.Context(), dir, Config{})
		require.NoError(b, err)
		b.StopTimer()
		require.NoError(b, e.Close())
		quick, whole = quick+timed(quickCheck), whole+timed(integrityCheck)
		b.StartTimer()
	}
	b.ReportMetric(quick.Seconds()/b.Elapsed().Seconds(), "check-of-open")
	b.ReportMetric(whole.Seconds()/quick.Seconds(), "integrity-of-check")
}

// fill stores ended runs as their ends would have, but all at once and without
// files. It returns their ids.
func fill(tb testing.TB, e *tester, n int) (ids []string) {
	tb.Helper()
	for done := 0; done < n; done += 10_000 {
		require.NoError(tb, e.db.write(tb.Context(), func(w *conn) error {
			for range min(10_000, n-done) {
				run := benchRun()
				ids = append(ids, run.ID)
				if err := fillOne(w, run); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	return ids
}

func fillOne(w *conn, run engine.Run) error {
	r := row{size: run.Size(), stored: stored{Run: run}}
	record, err := r.encode()
	if err != nil {
		return err
	}
	if r.seq, err = insert(w, nil, r, record); err != nil {
		return err
	}
	before := r.size
	run.Attempt = 1
	run = run.Finish(engine.StatusSucceeded, engine.Beat{OutputBytes: 1000},
		engine.End{Result: json.RawMessage(`{"primes":78498}`), FinishedAt: time.Now()})
	r.stored, r.size, r.logged = stored{run, &extent{Head: 1000, Tail: 1000, End: 1000, Whole: true}}, run.Size()+500, 1000
	if record, err = r.encode(); err != nil {
		return err
	}
	return r.finish(w, record, before)
}

// BenchmarkComplete measures whole runs: submitted, claimed, with a line of
// output, and ended.
func BenchmarkComplete(b *testing.B) {
	e := benchEngine(b)
	start := time.Now()
	spread(64, b.N, func() error { return wholeRun(b, e) })
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "runs/s")
}

// wholeRun submits a run, claims it, and ends it with a line of output.
func wholeRun(b *testing.B, e *tester) error {
	run := benchRun()
	if err := e.Submit(b.Context(), run); err != nil {
		return err
	}
	l, err := e.Claim(b.Context(), run.ID)
	if err != nil {
		return err
	}
	if err := l.Append(b.Context(), 0, []byte("done\n")); err != nil {
		return err
	}
	_, err = l.Complete(b.Context(), engine.StatusSucceeded, engine.Beat{OutputBytes: 5}, engine.End{FinishedAt: time.Now()})
	return err
}

// BenchmarkAppend measures a log that is far over its cap.
func BenchmarkAppend(b *testing.B) {
	e := benchEngine(b)
	l, err := e.Adopt(context.Background(), benchRun())
	require.NoError(b, err)
	p := make([]byte, 32<<10)
	b.SetBytes(int64(len(p)))
	b.ResetTimer()
	for i := range b.N {
		if err := l.Append(b.Context(), int64(i*len(p)), p); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPrune looks for what is not kept among 200,000 ended runs, and finds
// nothing.
func BenchmarkPrune(b *testing.B) {
	e := benchEngine(b)
	fill(b, e, 200_000)
	for b.Loop() {
		if n, err := e.Prune(b.Context(), engine.Retention{Keep: 1000}); err != nil || n > 0 {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkNotices measures reading the first 20 of 5,000 pending notices of a session,
// against reading all of them.
func BenchmarkNotices(b *testing.B) {
	e := benchEngine(b)
	fill(b, e, 5000)
	require.NoError(b, e.db.write(b.Context(), func(w *conn) error { return w.run("UPDATE runs SET notice = 1, session = 's'") }))
	read := func(max, want int) time.Duration {
		start := time.Now()
		runs, total, err := e.Engine.Pending(b.Context(), "s", time.Time{}, max)
		require.NoError(b, err)
		require.Len(b, runs, want)
		require.Equal(b, 5000, total)
		return time.Since(start)
	}

	var page, all time.Duration
	for b.Loop() {
		all += read(0, 5000)
		page += read(20, 20)
	}
	b.ReportMetric(float64(page.Microseconds())/float64(b.N), "us/page")
	b.ReportMetric(float64(all)/float64(page), "all/page")
}
