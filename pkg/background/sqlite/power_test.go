package sqlite

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// stream returns n bytes of the output every run of these tests writes: any
// piece of it can be checked by its offset.
func stream(offset, n int64) []byte {
	out := make([]byte, 0, n+20)
	for line := offset / 10; int64(len(out)) < n+offset%10; line++ {
		out = fmt.Appendf(out, "%09d\n", line)
	}
	return out[offset%10:][:n]
}

// checkLog makes sure that the log of a run is what the stream says, and has at
// least the bytes that were acknowledged.
func checkLog(t testing.TB, e *tester, id string, acknowledged int64) {
	t.Helper()
	head, err := e.Tail(t.Context(), id, 0, 1<<30)
	require.NoError(t, err)
	require.GreaterOrEqual(t, head.End, acknowledged, id)
	require.Equal(t, string(stream(head.Offset, int64(len(head.Data)))), string(head.Data), id)
	last, err := e.Tail(t.Context(), id, head.Offset+int64(len(head.Data)), 1<<30)
	require.NoError(t, err)
	require.Equal(t, string(stream(last.Offset, int64(len(last.Data)))), string(last.Data), id)
	require.Equal(t, head.End, last.Offset+int64(len(last.Data)), "%s ends where its log ends", id)
}

// A life records what was acknowledged of one run.
type life struct {
	id     string
	output int64 // bytes appended
	saved  int64 // bytes appended at the time of the last checkpoint
	stage  string
}

// workload makes runs in all stages until a call fails, or stop is closed. It
// reports each step before it takes the next.
type workload struct {
	e     *tester
	r     *rand.Rand
	limit int64 // limit of a run's output, in bytes
	acked func(life)
	stop  <-chan struct{}
}

func (w workload) run(t testing.TB, name string) {
	for i := 0; ; i++ {
		select {
		case <-w.stop:
			return
		default:
		}
		if w.one(t, life{id: fmt.Sprintf("bg_%s-%d", name, i)}, i) != nil {
			return
		}
	}
}

func (w workload) one(t testing.TB, v life, i int) error {
	ack := func(stage string) { v.stage = stage; w.acked(v) }
	if err := w.e.Submit(t.Context(), newRun(v.id)); err != nil {
		return err
	}
	ack("submitted")
	l, err := w.e.Claim(t.Context(), v.id)
	if err != nil {
		return err
	}
	ack("running")
	for range w.r.IntN(8) {
		n := min(w.r.Int64N(600), w.limit-v.output)
		if err := l.Append(t.Context(), v.output, stream(v.output, n)); err != nil {
			return err
		}
		v.output += n
		ack("running")
		if w.r.IntN(3) == 0 {
			if err := l.Save(t.Context(), strconv.AppendInt(nil, v.output, 10)); err != nil {
				return err
			}
			v.saved = v.output
			ack("running")
		}
	}
	if i%3 == 0 {
		return nil // it is left running
	}
	end := engine.End{Result: []byte(`{"ok":true}`), Summary: v.id, FinishedAt: time.Now()}
	if _, err := l.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{OutputBytes: v.output}, end); err != nil {
		return err
	}
	ack("ended")
	if i%2 == 0 {
		if err := w.e.Acknowledge(t.Context(), "s", []string{v.id}); err != nil {
			return err
		}
		ack("seen")
	}
	return nil
}

// A load is several concurrent workloads, and what was acknowledged to them.
type load struct {
	mu    sync.Mutex
	lives map[string]life
}

// begin starts the workloads of a round, and returns once that number of steps was acknowledged.
func (l *load) begin(t testing.TB, e *tester, round, steps int, limit int64) (stop func()) {
	ending, begun := make(chan struct{}), make(chan struct{})
	acked := func(v life) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lives[v.id] = v
		if steps--; steps == 0 {
			close(begun)
		}
	}
	var writers sync.WaitGroup
	for i := range 8 {
		w := workload{e, rand.New(rand.NewPCG(uint64(i), uint64(round))), limit, acked, ending}
		writers.Go(func() { w.run(t, fmt.Sprint(round, "-", i)) })
	}
	<-begun
	return func() {
		close(ending)
		writers.Wait()
	}
}

// acknowledged returns what was acknowledged so far.
func (l *load) acknowledged() map[string]life {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.lives)
}

// checkLife makes sure that what was acknowledged of a run is there.
func checkLife(t testing.TB, e *tester, v life) {
	t.Helper()
	run := get(t, e, v.id)
	switch v.stage {
	case "running":
		require.NotEqual(t, engine.StatusQueued, run.Status, v.id)
		require.Equal(t, 1, run.Attempt, v.id)
	case "ended", "seen":
		require.Equal(t, engine.StatusSucceeded, run.Status, v.id)
		require.JSONEq(t, `{"ok":true}`, string(run.Result))
		require.Empty(t, run.ArtifactError)
		require.NotEqual(t, engine.NoticeNone, run.Notice)
		require.Contains(t, artifact(t, e, v.id, engine.ResultJSON), v.id)
	}
	if v.stage == "seen" {
		require.Equal(t, engine.NoticeSeen, run.Notice)
	}
	checkLog(t, e, v.id, v.output)
	if run.Status != engine.StatusRunning {
		return
	}
	l := claimed(t, e, v.id)
	require.Equal(t, 2, l.Run().Attempt)
	saved, _ := strconv.ParseInt(string(l.Checkpoint()), 10, 64)
	require.GreaterOrEqual(t, saved, v.saved)
}

// TestPowerCut copies the data directory in small blocks while it is written
// to, and opens the copy: it must hold what was acknowledged before the copy
// was begun. A reader keeps SQLite from beginning its log anew in the
// meantime, and no output is so long that files of it are removed: a disk
// would keep what was synced, but a slow copy could miss it.
func TestPowerCut(t *testing.T) {
	fulltest.Only(t, "copies files while they are written")
	const rounds = 4
	dir := t.TempDir()
	e := opened(t, dir)
	l := &load{lives: make(map[string]life)}
	for round := range rounds {
		stop := l.begin(t, e, round, 300, testCap/4*3) // it ends with the copy: what is checked takes longer than what is written
		copied := t.TempDir()
		var before map[string]life
		require.NoError(t, e.db.read(t.Context(), func(c *conn) error {
			require.NoError(t, c.script("BEGIN"))
			_, err := c.number("SELECT count(*) FROM runs")
			require.NoError(t, err)
			before = l.acknowledged()
			copyTree(t, dir, copied)
			return c.script("COMMIT")
		}))
		stop()
		require.NotEmpty(t, before)
		after := opened(t, copied)
		for _, v := range before {
			checkLife(t, after, v)
		}
		require.Zero(t, after.Stats().Problems)
		require.NoError(t, after.Close())
	}
}

// copyTree copies the database first: what SQLite moves there from its log in
// the meantime must not matter.
func copyTree(t testing.TB, from, to string) {
	t.Helper()
	copyBlocks(t, from, to, markName) // it may be older than the database, and never newer
	copyBlocks(t, from, to, databaseName)
	copyBlocks(t, from, to, databaseName+"-wal")
	require.NoError(t, filepath.WalkDir(filepath.Join(from, runsFolder), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it was removed since it was listed
		}
		name, err := filepath.Rel(from, path)
		require.NoError(t, err)
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, name), 0o700)
		}
		copyBlocks(t, from, to, name)
		return nil
	}))
}

// copyBlocks copies a file in blocks of 512 bytes, if it is there.
func copyBlocks(t testing.TB, from, to, name string) {
	t.Helper()
	src, err := os.Open(filepath.Join(from, name))
	if err != nil {
		return
	}
	defer func() { _ = src.Close() }()
	dst, err := os.Create(filepath.Join(to, name))
	require.NoError(t, err)
	_, err = io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, make([]byte, 512))
	require.NoError(t, err)
	require.NoError(t, dst.Close())
}

// killedDir is set in the process that TestEngineKilled kills.
const killedDir = "TOOLHOST_ENGINE_KILLED_DIR"

// TestEngineKilled kills a process that writes and is backed up, at random points, and looks
// at what it had acknowledged.
func TestEngineKilled(t *testing.T) {
	if dir := os.Getenv(killedDir); dir != "" {
		writeUntilKilled(t, dir)
		return
	}
	fulltest.Only(t, "kills processes")
	const rounds = 6
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	for round := range rounds {
		dir := t.TempDir()
		lives := killed(t, dir, 1+r.IntN(600))
		t.Logf("seed %d, round %d: %d runs", seed, round, len(lives))
		e := opened(t, dir)
		for _, v := range lives {
			checkLife(t, e, v)
		}
		require.Zero(t, e.Stats().Problems)
		left, err := filepath.Glob(filepath.Join(dir, snapshotPattern))
		require.NoError(t, err)
		require.Empty(t, left)
		require.NoError(t, e.Close())
	}
}

// killed starts this test in another process, kills it in the middle of its work once it has
// acknowledged that many steps, and returns everything that it had acknowledged.
func killed(t *testing.T, dir string, after int) map[string]life {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEngineKilled$", "-test.v")
	cmd.Env = append(os.Environ(), killedDir+"="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(out)
	var said bytes.Buffer
	for after > 0 {
		line, err := lines.ReadString('\n')
		said.WriteString(line)
		require.NoError(t, err, said.String())
		if strings.HasSuffix(line, "!\n") {
			after--
		}
	}
	require.NoError(t, cmd.Process.Kill())
	_, err = said.ReadFrom(lines)
	require.NoError(t, err)
	require.Error(t, cmd.Wait())
	lives := make(map[string]life)
	for line := range strings.Lines(said.String()) {
		var v life
		if n, _ := fmt.Sscanf(line, "%s %d %d %s !", &v.id, &v.output, &v.saved, &v.stage); n == 4 && strings.HasSuffix(line, " !\n") {
			lives[v.id] = v
		}
	}
	require.NotEmpty(t, lives)
	return lives
}

func writeUntilKilled(t *testing.T, dir string) {
	e := opened(t, dir)
	acked := func(v life) { fmt.Fprintf(os.Stdout, "%s %d %d %s !\n", v.id, v.output, v.saved, v.stage) }
	var writers sync.WaitGroup
	for i := range 8 {
		w := workload{e, rand.New(rand.NewPCG(uint64(i), uint64(os.Getpid()))), 20 * testCap, acked, nil}
		writers.Go(func() { w.run(t, strconv.Itoa(i)) })
	}
	writers.Go(func() {
		for e.Backup(t.Context(), io.Discard) == nil {
		}
	})
	writers.Wait()
}
