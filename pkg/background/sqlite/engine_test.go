package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/enginetest"
)

func TestEngine(t *testing.T) {
	enginetest.Run(t, func(t *testing.T) engine.Engine { return bare(t, t.TempDir(), Config{}) }, enginetest.OneWorker)
}

// A tester is an engine and its worker.
type tester struct {
	*Engine
	worker engine.Worker
}

// bare opens an engine that is closed after the test, unless the test closes it.
func bare(t testing.TB, dir string, cfg Config) *Engine {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	e, err := Open(t.Context(), dir, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// opened opens an engine and joins it.
func opened(t testing.TB, dir string) *tester { return openedWith(t, dir, Config{}) }

func openedWith(t testing.TB, dir string, cfg Config) *tester {
	t.Helper()
	e := &tester{Engine: bare(t, dir, cfg)}
	e.limit(t, engine.Quota{})
	return e
}

// limit joins again, with a quota.
func (e *tester) limit(t testing.TB, q engine.Quota) {
	t.Helper()
	if e.worker != nil {
		require.NoError(t, e.worker.Leave(t.Context()))
	}
	w, err := e.Join(t.Context(), engine.WorkerInfo{TTL: 24 * 365 * time.Hour, Quota: q})
	require.NoError(t, err)
	e.worker = w
}

// Submit stores a run that the worker has claimed.
func (e *tester) Submit(ctx context.Context, run engine.Run) error {
	return e.worker.Submit(ctx, run, &engine.Permits{})
}

func (e *tester) Adopt(ctx context.Context, run engine.Run) (engine.Lease, error) {
	return e.worker.Adopt(ctx, run, engine.Permits{})
}

// find returns an active run.
func (e *tester) find(id string) *active {
	e.active.mu.Lock()
	defer e.active.mu.Unlock()
	return e.active.runs[id]
}

// Claim starts a run: one that is claimed, queued, or an orphan.
func (e *tester) Claim(ctx context.Context, id string) (engine.Lease, error) {
	l, err := e.worker.Start(ctx, id)
	if !errors.Is(err, engine.ErrFenced) {
		return l, err
	}
	orphans, err := e.worker.Orphans(ctx, 1000)
	if err != nil {
		return nil, err
	}
	for _, run := range orphans {
		if run.ID == id {
			if err := e.worker.Requeue(ctx, id, run.Attempt); err != nil {
				return nil, err
			}
		}
	}
	if run, err := e.Engine.Get(ctx, id); err == nil && run.Status == engine.StatusRunning { // an orphan that an earlier call took
		if e.find(id).lease == nil {
			if err := e.worker.Requeue(ctx, id, run.Attempt); err != nil {
				return nil, err
			}
		}
	}
	if _, err := e.worker.Claim(ctx, 1000, engine.Permits{}); err != nil {
		return nil, err
	}
	return e.worker.Start(ctx, id)
}

func (e *tester) Requeue(ctx context.Context, id string, attempt int) error {
	if _, err := e.worker.Orphans(ctx, 1000); err != nil {
		return err
	}
	return e.worker.Requeue(ctx, id, attempt)
}

func (e *tester) Abandon(ctx context.Context, id string, attempt int, status engine.Status, b engine.Beat, end engine.End) (engine.Run, error) {
	if _, err := e.worker.Orphans(ctx, 1000); err != nil {
		return engine.Run{}, err
	}
	return e.worker.Abandon(ctx, id, attempt, status, b, end)
}

func (e *tester) Cancel(ctx context.Context, id string, c engine.Cancellation) (engine.Run, error) {
	return e.Engine.Cancel(ctx, id, c, engine.End{FinishedAt: c.At})
}

// Get returns a run with its payload.
func (e *tester) Get(ctx context.Context, id string) (engine.Run, error) {
	run, err := e.Engine.Get(ctx, id)
	for part, to := range map[engine.Part]*json.RawMessage{
		engine.PartArgs: &run.Args, engine.PartResult: &run.Result, engine.PartContent: &run.Content,
	} {
		if err == nil {
			*to, err = e.Payload(ctx, id, part)
		}
	}
	return run, err
}

const testCap = 1 << 10

func newRun(id string) engine.Run {
	return engine.Run{
		ID: id, Session: "s", Tool: "primes", Args: json.RawMessage(`{"limit":10}`), Title: "Primes", Origin: engine.OriginSpawned,
		SignalOnCompletion: true, Timeout: time.Minute, OutputCap: testCap, CreatedAt: time.Now(),
	}
}

func submitted(t testing.TB, e *tester, id string) {
	t.Helper()
	require.NoError(t, e.Submit(t.Context(), newRun(id)))
}

func started(t testing.TB, e *tester, id string) engine.Lease {
	t.Helper()
	submitted(t, e, id)
	return claimed(t, e, id)
}

func claimed(t testing.TB, e *tester, id string) engine.Lease {
	t.Helper()
	l, err := e.Claim(t.Context(), id)
	require.NoError(t, err)
	return l
}

func completed(t testing.TB, l engine.Lease) engine.Run {
	t.Helper()
	run, err := l.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{FinishedAt: time.Now()})
	require.NoError(t, err)
	return run
}

// ended makes a run that wrote output and succeeded.
func ended(t testing.TB, e *tester, id, output string) engine.Run {
	t.Helper()
	l := started(t, e, id)
	require.NoError(t, l.Append(t.Context(), 0, []byte(output)))
	return completed(t, l)
}

func get(t testing.TB, e *tester, id string) engine.Run {
	t.Helper()
	run, err := e.Get(t.Context(), id)
	require.NoError(t, err)
	return run
}

func tail(t testing.TB, e *tester, id string) string {
	t.Helper()
	chunk, err := e.Tail(t.Context(), id, 0, 1<<20)
	require.NoError(t, err)
	return string(chunk.Data)
}

func artifact(t testing.TB, e *tester, id, name string) string {
	t.Helper()
	f, err := e.Open(t.Context(), id, name)
	require.NoError(t, err)
	data, err := io.ReadAll(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return string(data)
}

// TestCheckpointHasCost: a checkpoint that survives a crash has the cost that was reported.
func TestCheckpointHasCost(t *testing.T) {
	dir, left := t.TempDir(), t.TempDir()
	running := started(t, opened(t, dir), "bg_a")
	require.NoError(t, running.Save(t.Context(), []byte("page 1")))
	require.NoError(t, running.Report(t.Context(), engine.Beat{Cost: engine.Cost{Fuel: 7}}))
	require.NoError(t, running.Save(t.Context(), []byte("page 2")))
	require.NoError(t, os.CopyFS(left, os.DirFS(dir))) // as a crash leaves it
	require.EqualValues(t, 7, get(t, opened(t, left), "bg_a").Cost.Fuel)
}

// TestReopen checks everything that an engine has stored, after the next one has
// opened the directory.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	e := opened(t, dir)
	submitted(t, e, "bg_queued")
	running := started(t, e, "bg_running")
	require.NoError(t, running.Append(t.Context(), 0, []byte("so far")))
	require.NoError(t, running.Save(t.Context(), []byte("page 7")))
	err := running.Report(t.Context(), engine.Beat{Detail: "half", OutputBytes: 6})
	require.NoError(t, err)
	done := ended(t, e, "bg_done", "hello")
	schedule, err := e.PutSchedule(t.Context(), engine.Schedule{ID: "sc_a", Session: "s", Enabled: true, Cron: "* * * * *"}, 5)
	require.NoError(t, err)
	_, err = e.PutSchedule(t.Context(), engine.Schedule{ID: "sc_removed", Session: "s", Enabled: true, Cron: "* * * * *", Args: json.RawMessage(`{}`)}, 5)
	require.NoError(t, err)
	require.NoError(t, e.RemoveSchedule(t.Context(), "sc_removed"))
	require.NoError(t, e.Close())

	_, err = e.Get(t.Context(), "bg_done")
	require.ErrorIs(t, err, engine.ErrClosed)
	require.ErrorIs(t, running.Report(t.Context(), engine.Beat{}), engine.ErrFenced)
	require.ErrorIs(t, running.Append(t.Context(), 6, []byte("late")), engine.ErrClosed)
	for _, q := range []engine.Query{{}, {Active: true}} {
		_, err = e.List(t.Context(), q)
		require.ErrorIs(t, err, engine.ErrClosed, "%+v", q)
	}
	require.NoError(t, e.Close(), "twice")

	e = opened(t, dir)
	require.Equal(t, engine.StatusQueued, get(t, e, "bg_queued").Status)
	require.JSONEq(t, `{"limit":10}`, string(get(t, e, "bg_queued").Args))
	orphan := get(t, e, "bg_running")
	require.Equal(t, engine.StatusRunning, orphan.Status)
	require.Equal(t, "half", orphan.Detail)
	require.Equal(t, "so far", tail(t, e, "bg_running"))
	again := get(t, e, "bg_done")
	require.True(t, again.FinishedAt.Equal(done.FinishedAt))
	require.Equal(t, engine.NoticePending, again.Notice)
	require.Equal(t, "hello", artifact(t, e, "bg_done", engine.OutputLog))
	stored, err := e.GetSchedule(t.Context(), "sc_a")
	require.NoError(t, err)
	require.Equal(t, schedule.Revision, stored.Revision)
	_, err = e.GetSchedule(t.Context(), "sc_removed")
	require.ErrorIs(t, err, engine.ErrNotFound)

	next := claimed(t, e, "bg_running")
	require.Equal(t, 2, next.Run().Attempt, "at once: its worker is gone")
	require.Equal(t, "page 7", string(next.Checkpoint()))
	require.FileExists(t, filepath.Join(dir, "runs", "bg_running", "output.log"), "what the first attempt wrote stays")
	require.NoError(t, next.Append(t.Context(), 0, []byte("again")))
	completed(t, next)
	require.FileExists(t, filepath.Join(dir, "runs", "bg_running.2", "result.json"))
	require.Zero(t, e.Stats().Problems)
}

func TestOrphanKeepsItsOutput(t *testing.T) {
	dir := t.TempDir()
	e := opened(t, dir)
	output := strings.Repeat("0123456789", testCap)
	require.NoError(t, started(t, e, "bg_a").Append(t.Context(), 0, []byte(output)))
	require.NoError(t, e.Close())

	e = opened(t, dir)
	run, err := e.Abandon(t.Context(), "bg_a", 1, engine.StatusFailed, engine.Beat{},
		engine.End{Error: &engine.RunError{Kind: engine.KindOrphaned}, FinishedAt: time.Now()})
	require.NoError(t, err)
	require.EqualValues(t, len(output), run.OutputBytes)
	want := output[:testCap/4*3] + marker(int64(len(output)-testCap)) + output[len(output)-testCap/4:]
	require.Equal(t, want, artifact(t, e, "bg_a", engine.OutputLog))
	data, err := os.ReadFile(filepath.Join(dir, "runs", "bg_a", "output.log"))
	require.NoError(t, err)
	require.Equal(t, want, string(data))
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	e := opened(t, dir)
	_, err := Open(t.Context(), dir, Config{})
	require.ErrorIs(t, err, engine.ErrLocked)
	require.ErrorContains(t, err, fmt.Sprintf("process %d", os.Getpid()))
	require.ErrorContains(t, err, dir)
	submitted(t, e, "bg_a")
	require.NoError(t, e.Close())
	require.NoError(t, opened(t, dir).Close())
}

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		dir  string
		cfg  Config
		want error
	}{
		"no directory":     {t.Context(), "", Config{}, nil},
		"a negative quota": {t.Context(), t.TempDir(), Config{LogQuota: -1}, nil},
		"an ended context": {ended, t.TempDir(), Config{}, context.Canceled},
		"a file":           {t.Context(), file, Config{}, nil},
	} {
		_, err := Open(c.ctx, c.dir, c.cfg)
		require.Error(t, err, name)
		if c.want != nil {
			require.ErrorIs(t, err, c.want, name)
		}
	}
}

func TestHostileIDs(t *testing.T) {
	e := opened(t, t.TempDir())
	for _, id := range []string{"", ".", "..", "../x", "a/b", `a\b`, "a.2", "a b", "C:x", "a\x00b", "ä", strings.Repeat("x", maxIDLength+1)} {
		require.ErrorContains(t, e.Submit(t.Context(), newRun(id)), "invalid run id", "%q", id)
		_, err := e.Adopt(t.Context(), newRun(id))
		require.ErrorContains(t, err, "invalid run id", "%q", id)
		_, err = e.Open(t.Context(), id, engine.OutputLog)
		require.ErrorIs(t, err, engine.ErrNotFound, "%q", id)
	}
}

// A path may contain characters that have a meaning in a URI.
func TestDirectoryNames(t *testing.T) {
	for _, name := range []string{"a b", "a?b=c", "a#b", "a%20b", "ä"} {
		if runtime.GOOS == "windows" && strings.ContainsAny(name, "?#") {
			continue
		}
		dir := filepath.Join(t.TempDir(), name)
		e := opened(t, dir)
		submitted(t, e, "bg_a")
		require.NoError(t, e.Close())
		require.FileExists(t, filepath.Join(dir, databaseName))
		get(t, opened(t, dir), "bg_a")
	}
}

func TestModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no such modes on Windows")
	}
	dir := filepath.Join(t.TempDir(), "data")
	e := opened(t, dir)
	ended(t, e, "bg_a", strings.Repeat("x", 3*testCap))
	require.NoError(t, started(t, e, "bg_b").Append(t.Context(), 0, bytes.Repeat([]byte{'x'}, 3*testCap)))
	seen := 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		}
		require.Equal(t, want, info.Mode().Perm(), path)
		seen++
		return nil
	}))
	require.Greater(t, seen, 10)
}

func TestResultJSON(t *testing.T) {
	dir := t.TempDir()
	e := opened(t, dir)
	l := started(t, e, "bg_a")
	large := json.RawMessage(`"` + strings.Repeat("x", 2<<20) + `"`)
	run, err := l.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{Result: large, FinishedAt: time.Now()})
	require.NoError(t, err)
	require.Nil(t, run.Result)
	require.True(t, string(large) == string(get(t, e, "bg_a").Result))
	path := filepath.Join(dir, "runs", "bg_a", "result.json")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, artifact(t, e, "bg_a", engine.ResultJSON), string(data))
	var envelope engine.Envelope
	require.NoError(t, json.Unmarshal(data, &envelope))
	require.Equal(t, large, envelope.Result)
	require.NoError(t, os.Remove(path))
	require.Equal(t, string(data), artifact(t, e, "bg_a", engine.ResultJSON), "the record is what counts")
	require.NoFileExists(t, path+".new")
}

// TestBeatsAreStored looks into the database itself.
func TestBeatsAreStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := opened(t, t.TempDir())
		l := started(t, e, "bg_a")
		detail := func() string {
			var r row
			require.NoError(t, e.db.read(t.Context(), func(c *conn) (err error) { r, err = runTable.load(c, "bg_a"); return err }))
			return r.Detail
		}
		err := l.Report(t.Context(), engine.Beat{Detail: "half"})
		require.NoError(t, err)
		require.Equal(t, "half", get(t, e, "bg_a").Detail)
		require.Empty(t, detail(), "not at once")
		time.Sleep(storeBeatsEvery)
		synctest.Wait()
		require.Equal(t, "half", detail())
		require.False(t, e.find("bg_a").changed, "what is not new is not stored again")
		err = l.Report(t.Context(), engine.Beat{Detail: "almost"})
		require.NoError(t, err)
		require.NoError(t, e.Requeue(t.Context(), "bg_a", 1))
		require.Equal(t, "almost", detail())
		time.Sleep(10 * storeBeatsEvery)
		require.Equal(t, engine.StatusQueued, get(t, e, "bg_a").Status)
	})
}

// TestPlans makes sure that no query scans all runs to find a few.
func TestPlans(t *testing.T) {
	e := opened(t, t.TempDir())
	for range 2 { // with and without statistics
		for bits := range 1 << 5 {
			q, above, below := engine.Query{Limit: 20}, int64(0), int64(math.MaxInt64)
			if bits&1 != 0 {
				above = 7
			}
			if bits&2 != 0 {
				q.Session = "s"
			}
			if bits&4 != 0 {
				q.IdempotencyKey, q.Session = "k", "s"
			}
			if bits&8 != 0 {
				q.Schedule = "sc_a"
			}
			if bits&16 != 0 {
				q.Parent, below = "bg_b", 9
			}
			sql, args := selectEnded(q, above, below)
			plan := explain(t, e, sql, args...)
			if bits > 1 { // else by rowid
				require.NotContains(t, plan, "SCAN runs\n", "%+v\n%s", q, plan)
			}
			if bits < 4 {
				require.NotContains(t, plan, "B-TREE", "%+v: it sorts\n%s", q, plan)
			}
		}
		fill(t, e, 500)
		require.NoError(t, e.db.write(t.Context(), func(w *conn) error { return w.run("ANALYZE") }))
	}
	plan := explain(t, e, selectNotices, "s", int64(1), int64(1))
	require.NotContains(t, plan, "B-TREE", "it sorts")
	require.Contains(t, explain(t, e, countNotices, "s", int64(1)), "COVERING INDEX runs_notice")
	plan = explain(t, e, selectPrunable, int64(1), int64(1), int64(1))
	require.Contains(t, plan, "COVERING INDEX runs_ended")
	require.Contains(t, plan, "B-TREE FOR LAST 2 TERMS", "it sorts more than the runs of one session")
	require.NotContains(t, explain(t, e, selectOldestLogs), "B-TREE", "it sorts")
	require.Contains(t, explain(t, e, selectLogged), "COVERING INDEX")
}

func explain(t *testing.T, e *tester, sql string, args ...driver.Value) string {
	t.Helper()
	var plan strings.Builder
	require.NoError(t, e.db.read(t.Context(), func(c *conn) error {
		return c.query(func(row []driver.Value) error {
			fmt.Fprintln(&plan, row[3])
			return nil
		}, "EXPLAIN QUERY PLAN "+sql, args...)
	}))
	return plan.String()
}
