package sqlite_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/pkg/background/sqlite"
)

// The crash harness: a parent starts a host in a process of its own, kills it
// with SIGKILL at a random point, starts it again on the same folder, and so
// on. The host says on its standard output what it promised to whom, and its
// tools note in a file of their own each time they are executed. When the last
// host has come to rest, the parent compares what is stored with all that.
//
// TOOLHOST_CRASH_KILLS is the number of kills (20 by default), and
// TOOLHOST_CRASH_SEED the seed; a failure names the seed.

const (
	crashFolder   = "TOOLHOST_CRASH_FOLDER" // set: this process is a host
	crashSeed     = "TOOLHOST_CRASH_SEED"   // seed of the host's choices
	crashDrain    = "TOOLHOST_CRASH_DRAIN"  // set: the host only waits for its runs
	crashSessions = 3
	crashKeys     = 300             // keys of a session
	crashOutput   = 16 << 10        // output cap of a run
	crashRest     = 5 * time.Minute // for the last host to come to rest: only a broken one takes so long
)

// The tools of the harness. Those of rerunnable may be executed again.
var (
	crashTools = []string{"once", "again", "look", "resume"}
	rerunnable = map[string]bool{"again": true, "look": true, "resume": true}
)

func TestKilled(t *testing.T) {
	fulltest.Only(t, "kills processes")
	if os.Getenv(crashFolder) != "" {
		t.Skip("this is a host of the harness")
	}
	kills := number(t, "TOOLHOST_CRASH_KILLS", 20)
	seed := number(t, crashSeed, int(time.Now().UnixNano()&0xffffff))
	t.Logf("%s=%d TOOLHOST_CRASH_KILLS=%d", crashSeed, seed, kills)
	h := &harness{t: t, folder: t.TempDir(), random: rand.New(rand.NewPCG(uint64(seed), 1)), said: make(map[string][]string)}
	for i := range kills {
		h.killOne(uint64(seed*1000 + i))
	}
	h.drain()
	h.verify(kills)
}

func number(t *testing.T, name string, def int) int {
	text := os.Getenv(name)
	if text == "" {
		return def
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

// A harness is the parent.
type harness struct {
	t      *testing.T
	folder string
	random *rand.Rand
	said   map[string][]string // what hosts said, by its first word: the rest of the lines
}

func (h *harness) host(seed uint64, env ...string) (*exec.Cmd, *bufio.Scanner) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestCrashHost$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), crashFolder+"="+h.folder, fmt.Sprintf("%s=%d", crashSeed, seed))
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.StdoutPipe()
	require.NoError(h.t, err)
	cmd.Stderr = h.t.Output()
	require.NoError(h.t, cmd.Start())
	return cmd, bufio.NewScanner(out)
}

// killOne starts a host and kills it: now and then while it starts, else after
// it has done a random number of things.
func (h *harness) killOne(seed uint64) {
	cmd, lines := h.host(seed)
	if h.random.IntN(8) == 0 {
		time.Sleep(time.Duration(h.random.IntN(60)) * time.Millisecond)
		require.NoError(h.t, cmd.Process.Kill())
	}
	after := h.random.IntN(120)
	for n := 0; lines.Scan(); n++ {
		h.hear(lines.Text())
		if n == after {
			_ = cmd.Process.Kill()
		}
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	require.ErrorAs(h.t, err, &exit)
	require.Equal(h.t, -1, exit.ExitCode(), "the host of seed %d failed by itself", seed)
}

// hear keeps the complete lines that a host itself wrote: a kill may cut off the last one.
func (h *harness) hear(line string) {
	line, ok := strings.CutSuffix(line, ";")
	word, rest, _ := strings.Cut(line, " ")
	if ok {
		h.said[word] = append(h.said[word], rest)
	}
}

// drain starts a host that only waits until all runs have ended.
func (h *harness) drain() {
	cmd, lines := h.host(0, crashDrain+"=1")
	for lines.Scan() {
		h.hear(lines.Text())
	}
	require.NoError(h.t, cmd.Wait(), "the last host")
	require.Len(h.t, h.said["rested"], 1, "runs are stuck")
}

func (h *harness) verify(kills int) {
	t, ctx := h.t, context.Background()
	store, err := sqlite.Open(ctx, h.folder, sqlite.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	require.Zero(t, store.Stats().Problems, "nothing is damaged")
	stored := make(map[string]engine.Run)
	runs, err := store.List(ctx, engine.Query{})
	require.NoError(t, err)
	for _, r := range runs {
		require.True(t, r.Status.Terminal(), "run %s (%s) is %s", r.ID, r.Tool, r.Status)
		for part, to := range map[engine.Part]*json.RawMessage{engine.PartArgs: &r.Args, engine.PartResult: &r.Result} {
			*to, err = store.Payload(ctx, r.ID, part)
			require.NoError(t, err)
		}
		stored[r.ID] = r
	}
	h.promised(stored)
	h.keys(stored)
	h.decisions(stored)
	h.executed(stored)
	h.notices(stored)
	h.schedules(store, stored)
	h.values(store, kills)
	outcomes := make(map[string]int)
	for _, r := range stored {
		h.log(store, r)
		outcome := fmt.Sprintf("%s %s %s attempt %d", r.Origin, r.Tool, r.Status, r.Attempt)
		if r.Error != nil {
			outcome += " " + string(r.Error.Kind)
		}
		outcomes[outcome]++
	}
	require.NotEmpty(t, stored)
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		t.Logf("%5d %s", outcomes[outcome], outcome)
	}
}

// promised: no run is lost whose id was reported, and an end that was reported stays.
func (h *harness) promised(stored map[string]engine.Run) {
	for _, id := range h.said["spawned"] {
		require.Contains(h.t, stored, id, "an acknowledged spawn is lost")
	}
	for _, line := range h.said["ended"] {
		id, status, _ := strings.Cut(line, " ")
		require.Equal(h.t, status, string(stored[id].Status), "run %s: its end changed", id)
	}
	for _, id := range h.said["stopping"] {
		require.NotNil(h.t, stored[id].Cancel, "run %s: a stop request is lost", id)
	}
}

// keys: all calls with a key got the same run, whichever host answered, and it is
// stored. What executed checks shows that none of them acted twice.
func (h *harness) keys(stored map[string]engine.Run) {
	ids := make(map[string]string)
	for _, line := range h.said["keyed"] {
		key, id, _ := strings.Cut(line, " ")
		if ids[key] == "" {
			ids[key] = id
		}
		require.Equal(h.t, ids[key], id, "the key %s has two runs", key)
		require.Equal(h.t, key, stored[id].IdempotencyKey, "the run of a key is lost")
	}
	for _, line := range h.said["answered"] { // by Run itself
		id, result, _ := strings.Cut(line, " ")
		require.Equal(h.t, result, string(stored[id].Result), "run %s: its caller was answered otherwise", id)
	}
	for id, run := range stored {
		require.True(h.t, !run.Shown || run.IdempotencyKey != "", "run %s has no notice", id)
	}
	h.t.Logf("%5d keys, %d calls with them, %d answered", len(ids), len(h.said["keyed"]), len(h.said["answered"]))
}

// executed: no tool that must run only once is executed twice, no attempt is
// executed twice, and no result comes from another attempt.
func (h *harness) executed(stored map[string]engine.Run) {
	data, err := os.ReadFile(filepath.Join(h.folder, "effects"))
	require.NoError(h.t, err)
	starts, attempts := make(map[string]int), make(map[string]int)
	for line := range strings.Lines(string(data)) {
		var token string
		var attempt int
		_, err := fmt.Sscanf(line, "%s %d\n", &token, &attempt)
		require.NoError(h.t, err, "%q", line)
		starts[token]++
		attempts[strings.TrimSpace(line)]++
	}
	for key, n := range attempts {
		require.Equal(h.t, 1, n, "an attempt was executed %d times: %s", n, key)
	}
	for id, run := range stored {
		token := crashToken(h.t, run.Args)
		n := starts[token]
		require.LessOrEqual(h.t, n, run.SavedIn+3, "run %s: three attempts got no further", id)
		if !rerunnable[run.Tool] {
			require.LessOrEqual(h.t, n, 1, "run %s of %s was executed %d times", id, run.Tool, n)
		}
		if run.Status == engine.StatusSucceeded {
			var result crashResult
			require.NoError(h.t, json.Unmarshal(run.Result, &result))
			require.Equal(h.t, crashResult{token, run.Attempt}, result)
			require.NotZero(h.t, n)
		}
	}
}

// schedules: a schedule that was reported is stored, and each fired once: it was a
// one-shot.
func (h *harness) schedules(store *sqlite.Engine, stored map[string]engine.Run) {
	fired := make(map[string]int)
	for _, run := range stored {
		fired[run.Schedule]++
	}
	for _, id := range h.said["scheduled"] {
		s, err := store.GetSchedule(context.Background(), id)
		require.NoError(h.t, err, "an acknowledged schedule is lost")
		require.False(h.t, s.Enabled)
		require.Equal(h.t, 1, fired[id], "schedule %s fired %d times", id, fired[id])
	}
}

// notices: each ended run has a pending notice, or its notice was handed out, or
// its end was seen in another way.
func (h *harness) notices(stored map[string]engine.Run) {
	reported := make(map[string]bool)
	for _, line := range append(h.said["handed"], h.said["seen"]...) {
		reported[line] = true
	}
	for id, run := range stored {
		switch run.Notice {
		case engine.NoticePending:
		case engine.NoticeSeen:
			require.True(h.t, reported[id], "the notice of run %s is lost", id)
		default:
			require.False(h.t, run.SignalOnCompletion && !run.Shown, "run %s has no notice", id)
		}
	}
}

// log: what is kept of an attempt is the beginning of what it wrote, and all
// of it if the run came to its end.
func (h *harness) log(store *sqlite.Engine, run engine.Run) {
	if run.StartedAt.IsZero() {
		return
	}
	whole := crashStream(crashToken(h.t, run.Args), run.Attempt)
	file, err := store.Open(context.Background(), run.ID, engine.OutputLog)
	require.NoError(h.t, err, "run %s", run.ID)
	kept, err := io.ReadAll(file)
	require.NoError(h.t, err)
	require.NoError(h.t, file.Close())
	if run.Status == engine.StatusCanceled { // the manager says so in the log
		kept = bytes.TrimSuffix(bytes.TrimSuffix(kept, []byte("[system] Canceled by request.\n")), []byte("\n"))
	}
	head, tail, omitted := bytes.Cut(kept, []byte("\n[system] "))
	require.True(h.t, bytes.HasPrefix(whole, head), "run %s: the log is not what the run wrote", run.ID)
	if omitted {
		_, tail, _ = bytes.Cut(tail, []byte("omitted\n"))
		require.True(h.t, bytes.Contains(whole, tail), "run %s: the end of the log is not what the run wrote", run.ID)
	}
	if run.Status == engine.StatusSucceeded && !omitted {
		require.Equal(h.t, len(whole), len(head), "run %s: output is lost", run.ID)
	}
}

// crashStream is what a tool of the harness writes: lines, now and then more
// than are kept.
func crashStream(token string, attempt int) []byte {
	seed := fnv.New64a()
	fmt.Fprint(seed, token, attempt)
	random := rand.New(rand.NewPCG(seed.Sum64(), 2))
	size := random.IntN(2 << 10)
	if random.IntN(10) == 0 {
		size = 4 * crashOutput
	}
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "%s %d line %d %x\n", token, attempt, i, random.Uint64())
	}
	return b.Bytes()
}

type crashResult struct {
	Token   string
	Attempt int
}

// crashArgs are the arguments of one execution: the token tells it from all
// others, whether it has a record or not.
func crashArgs() json.RawMessage { return fmt.Appendf(nil, `{"token":"%016x"}`, rand.Uint64()) }

func crashToken(t *testing.T, args json.RawMessage) string {
	var in struct{ Token string }
	require.NoError(t, json.Unmarshal(args, &in))
	return in.Token
}

// TestCrashHost is the process that is killed.
func TestCrashHost(t *testing.T) {
	folder := os.Getenv(crashFolder)
	if folder == "" {
		t.Skip("a host of TestKilled")
	}
	seed := uint64(number(t, crashSeed, 0))
	h := &crashHost{t: t, random: rand.New(rand.NewPCG(seed, 3))}
	var err error
	h.effects, err = os.OpenFile(filepath.Join(folder, "effects"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	store, err := sqlite.Open(t.Context(), folder, sqlite.Config{})
	require.NoError(t, err)
	require.Zero(t, store.Stats().Problems)
	h.store = store
	h.manager, err = background.New(t.Context(), background.Config{
		Executor: h.execute, Engine: store, PerSession: 12, PerHost: 24, OutputCap: crashOutput, RetainRuns: 1 << 20,
		Readmit: func(_ context.Context, run engine.Run) error {
			if run.Attempt > 0 && !rerunnable[run.Tool] {
				return errors.New("may have an effect twice")
			}
			return nil
		},
	})
	require.NoError(t, err)
	h.say("ready")
	if os.Getenv(crashDrain) != "" {
		h.decideAll()
		h.rest()
		require.NoError(t, h.manager.Close(t.Context()))
		require.NoError(t, store.Close())
		return
	}
	for {
		h.step()
	}
}

type crashHost struct {
	t       *testing.T
	manager *background.Manager
	store   *sqlite.Engine
	effects *os.File
	random  *rand.Rand
	out     sync.Mutex
}

// say tells the parent. The semicolon says that the line is whole.
func (h *crashHost) say(words ...any) {
	h.out.Lock()
	defer h.out.Unlock()
	fmt.Fprintln(os.Stdout, strings.TrimSuffix(fmt.Sprintln(words...), "\n")+";")
}

// execute is the executor.
func (h *crashHost) execute(ctx context.Context, run engine.Run, sink *output.Sink) (background.Outcome, error) {
	return h.work(ctx, run.Tool, crashToken(h.t, run.Args), run.Attempt, sink)
}

// work is the tool: it notes that it is executed, writes its stream with pauses,
// and ends in one of the ways in which a tool can end.
func (h *crashHost) work(ctx context.Context, tool, token string, attempt int, sink *output.Sink) (background.Outcome, error) {
	if _, err := fmt.Fprintf(h.effects, "%s %d\n", token, attempt); err != nil {
		return background.Outcome{}, err
	}
	if tool == "resume" && attempt > 1 && sink.Restore() != nil && string(sink.Restore()) != token {
		return background.Outcome{}, fmt.Errorf("the checkpoint of another run: %q", sink.Restore())
	}
	if tool == "resume" {
		if err := sink.Checkpoint(ctx, []byte(token)); err != nil && attempt > 1 { // a call in the foreground has none
			return background.Outcome{}, err
		}
	}
	stream := crashStream(token, attempt)
	for chunk := range bytes.Lines(stream) {
		_, _ = sink.Stdout().Write(chunk)
		if len(stream) < 4<<10 && rand.IntN(4) == 0 {
			select {
			case <-time.After(time.Duration(rand.IntN(8)) * time.Millisecond):
			case <-sink.Stopping():
				return background.Outcome{}, context.Canceled
			case <-ctx.Done():
				return background.Outcome{}, context.Cause(ctx)
			}
		}
	}
	if strings.HasSuffix(token, "a") {
		return background.Outcome{}, &background.Error{Kind: engine.KindToolError, Message: "as it may be"}
	}
	result, err := json.Marshal(crashResult{token, attempt})
	return background.Outcome{Result: result}, err
}

// step does one thing an agent does, and returns the outcome.
func (h *crashHost) step() {
	session := fmt.Sprint("session-", h.random.IntN(crashSessions))
	switch n := h.random.IntN(25); {
	case n < 6:
		h.spawn(session)
	case n < 8:
		h.stop(session)
	case n < 10:
		h.notices(session)
	case n < 12:
		h.park(session)
	case n < 13:
		h.schedule(session)
	case n < 16:
		h.keyed(session)
	case n < 18:
		h.count()
	case n < 22:
		h.hold(session)
	default:
		h.check(session)
	}
}

func (h *crashHost) tool() string { return crashTools[h.random.IntN(len(crashTools))] }

// refused reports whether err says that there is no room. Then it pauses: the
// parent should see more than refusals.
func (h *crashHost) refused(err error) bool {
	var full *engine.LimitError
	if errors.As(err, &full) {
		time.Sleep(time.Millisecond)
		return true
	}
	require.NoError(h.t, err)
	return false
}

func (h *crashHost) spawn(session string) {
	run, err := h.manager.Spawn(h.t.Context(), session, background.SpawnRequest{Tool: h.tool(), Args: crashArgs(), Silent: h.random.IntN(5) == 0})
	if !h.refused(err) {
		h.say("spawned", run.ID)
	}
}

// park calls a tool in the foreground, in a goroutine of its own.
func (h *crashHost) park(session string) {
	req := background.RunRequest{SpawnRequest: background.SpawnRequest{Tool: h.tool(), Args: crashArgs()}, ParkAfter: time.Duration(1+h.random.IntN(5)) * time.Millisecond}
	req.Work = func(ctx context.Context, sink *output.Sink) (background.Outcome, error) {
		return h.work(ctx, req.Tool, crashToken(h.t, req.Args), 1, sink)
	}
	go func() {
		ran, err := h.manager.Run(h.t.Context(), session, req)
		if err == nil && ran.Parked {
			h.say("spawned", ran.Run.ID)
		}
	}()
}

// keyed makes a call with a key that others have used too, before and after a crash. Its
// tool and its arguments depend on the key alone. Now and then its caller leaves.
func (h *crashHost) keyed(session string) {
	key := fmt.Sprintf("%s-%d", session, h.random.IntN(crashKeys))
	seed := fnv.New64a()
	fmt.Fprint(seed, key)
	req := background.RunRequest{SpawnRequest: background.SpawnRequest{
		Tool: crashTools[seed.Sum64()%uint64(len(crashTools))], Args: fmt.Appendf(nil, `{"token":"%016x"}`, seed.Sum64()), IdempotencyKey: key,
	}}
	if h.random.IntN(2) == 0 {
		req.ParkAfter = time.Duration(1+h.random.IntN(5)) * time.Millisecond
	}
	req.Work = func(ctx context.Context, sink *output.Sink) (background.Outcome, error) {
		return h.work(ctx, req.Tool, crashToken(h.t, req.Args), 1, sink)
	}
	ctx, cancel := h.t.Context(), func() {}
	if h.random.IntN(4) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(1+h.random.IntN(5))*time.Millisecond)
	}

	go func() {
		defer cancel()
		ran, err := h.manager.Run(ctx, session, req)
		if ran.Run.ID == "" {
			var full *engine.LimitError
			if !errors.As(err, &full) && !errors.Is(err, context.DeadlineExceeded) {
				panic(err)
			}
			return
		}
		h.say("keyed", key, ran.Run.ID)
		if err == nil && !ran.Parked && !ran.Reused {
			h.say("answered", ran.Run.ID, string(ran.Outcome.Result))
		}
	}()
}

func (h *crashHost) schedule(session string) {
	at := time.Now().Add(time.Duration(5+h.random.IntN(50)) * time.Millisecond)
	s, err := h.manager.Schedule(h.t.Context(), session, background.ScheduleRequest{SpawnRequest: background.SpawnRequest{Tool: h.tool(), Args: crashArgs()}, At: at})
	var past *background.FieldError
	if errors.As(err, &past) && strings.Contains(past.Error(), "is in the past") { // it took longer than that to get there
		return
	}
	if !h.refused(err) {
		h.say("scheduled", s.ID)
	}
}

func (h *crashHost) notices(session string) {
	notices, _, err := h.manager.Pending(h.t.Context(), session, 10)
	require.NoError(h.t, err)
	var ids []string
	for _, n := range notices {
		ids = append(ids, n.ID)
		h.say("handed", n.ID)
	}
	require.NoError(h.t, h.manager.Acknowledge(h.t.Context(), session, ids))
}

// any returns one of the session's runs, "" if it has none.
func (h *crashHost) any(session string, active bool) string {
	runs, err := h.manager.List(h.t.Context(), engine.Query{Session: session, Active: active})
	require.NoError(h.t, err)
	if len(runs) == 0 {
		return ""
	}
	return runs[h.random.IntN(len(runs))].ID
}

func (h *crashHost) stop(session string) {
	id := h.any(session, h.random.IntN(4) > 0)
	if id == "" {
		return
	}
	h.say("seen", id) // a stop that reports the end counts as its notice
	stopped, err := h.manager.Stop(h.t.Context(), session, id, background.StopRequest{Force: h.random.IntN(2) == 0})
	require.NoError(h.t, err)
	if stopped.Status.Terminal() {
		h.say("ended", id, stopped.Status)
	}
	if stopped.Status == engine.StatusCanceled {
		h.say("stopping", id)
	}
}

func (h *crashHost) check(session string) {
	id := h.any(session, false)
	if id == "" {
		return
	}
	h.say("seen", id)
	checked, err := h.manager.Check(h.t.Context(), session, background.CheckRequest{IDs: []string{id}, Wait: time.Duration(h.random.IntN(3)) * time.Millisecond})
	require.NoError(h.t, err)
	if report := checked.Reports[0]; report.Final() {
		h.say("ended", id, report.Status)
	}
}

// rest waits until no run is active.
func (h *crashHost) rest() {
	for deadline := time.Now().Add(crashRest); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		active := 0
		for i := range crashSessions {
			session := fmt.Sprint("session-", i)
			runs, err := h.manager.List(h.t.Context(), engine.Query{Session: session, Active: true})
			require.NoError(h.t, err)
			schedules, err := h.manager.Schedules(h.t.Context(), session)
			require.NoError(h.t, err)
			active += len(runs)
			for _, s := range schedules {
				if s.Enabled {
					active++
				}
			}
		}
		if active == 0 {
			h.say("rested")
			return
		}
	}
}
