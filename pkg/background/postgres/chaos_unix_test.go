//go:build unix

package postgres_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/pglocal"
	"github.com/toolhost/toolhost/internal/pgtest"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/pkg/background/postgres"
)

const (
	chaosDatabase = "TOOLHOST_CHAOS_DATABASE" // set: this process is a host
	chaosEffects  = "TOOLHOST_CHAOS_EFFECTS"  // file in which runs record what they did
	chaosTime     = "TOOLHOST_CHAOS"          // how long, such as 10m; 15 s without it
	chaosLease    = 2 * time.Second
	chaosHosts    = 3
)

// standStill makes a host stop until it gets SIGCONT, but not between a check that it may act
// and the act: nothing that a host does could help there.
const standStill = syscall.SIGUSR1

// A disaster is the kind of failure that the server of a chaos suffers.
type disaster string

const (
	restarts     disaster = "restart"  // it crashes, and starts again
	synchronous  disaster = "failover" // it is gone, and its synchronous standby takes its place
	asynchronous disaster = "failover with loss"
)

// TestChaos kills hosts, makes them stand still for longer than their lease, and takes the
// server away, while clients spawn runs with keys and retry at another host. Then: no run that
// was acknowledged is lost, stuck or there twice; what must not run twice did not; and nothing
// has an effect once a later attempt has begun. A failover to a standby that lags loses what was
// not sent to it, which is counted; nothing else is wrong.
func TestChaos(t *testing.T) {
	fulltest.Only(t, "kills processes")
	if os.Getenv(chaosDatabase) != "" {
		t.Skip("this is a host of it")
	}
	long := 15 * time.Second
	if text := os.Getenv(chaosTime); text != "" {
		var err error
		long, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	for _, d := range []disaster{restarts, synchronous, asynchronous} {
		t.Run(string(d), func(t *testing.T) {
			c := newChaos(t, d)
			ctx, cancel := context.WithTimeout(t.Context(), long)
			defer cancel()
			for i := range chaosHosts {
				c.hosts[i] = &chaosHost{}
				c.start(i)
				t.Cleanup(func() { c.hosts[i].stop() })
			}

			var clients sync.WaitGroup
			for i := range 6 {
				clients.Go(func() { c.client(ctx, i) })
			}
			c.disturb(ctx)
			clients.Wait()
			c.verify()
		})
	}
}

type chaos struct {
	t        *testing.T
	disaster disaster
	server   *pglocal.Cluster
	standby  *pglocal.Cluster // nil: none
	url      string           // of whichever is the primary
	effects  string
	hosts    [chaosHosts]*chaosHost

	mu        sync.Mutex
	acked     map[string]string // ids of runs by their key
	disasters int
	kills     int
	stills    int
}

// newChaos starts the server, which syncs what it commits, and its standby.
func newChaos(t *testing.T, d disaster) *chaos {
	server, err := pglocal.Start()
	pgtest.Need(t, err)
	t.Cleanup(server.Stop)
	c := &chaos{t: t, disaster: d, server: server, url: server.URL, effects: filepath.Join(t.TempDir(), "effects"), acked: map[string]string{}}
	if d == restarts {
		return c
	}

	c.standby, err = pglocal.StartStandby(server)
	require.NoError(t, err)
	t.Cleanup(c.standby.Stop)
	c.url = pglocal.Failover(server, c.standby)
	c.confirm()
	return c
}

// confirm makes the server confirm only what its standby has, if that is synchronous.
func (c *chaos) confirm() {
	if c.disaster != synchronous {
		return
	}
	c.sql(c.server, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	c.sql(c.server, "SELECT pg_reload_conf()")
	require.Eventually(c.t, func() bool { return c.sql(c.server, "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'") == 1 }, time.Minute, 10*time.Millisecond)
	for range 2 { // which the checkpointer makes true, between two checkpoints
		c.sql(c.server, "CHECKPOINT")
	}
}

// sql runs a statement on a server, and returns the number of its rows.
func (c *chaos) sql(at *pglocal.Cluster, sql string) int64 {
	conn, err := pgx.Connect(c.t.Context(), at.URL)
	require.NoError(c.t, err)
	tag, err := conn.Exec(c.t.Context(), sql)
	require.NoError(c.t, errors.Join(err, conn.Close(c.t.Context())))
	return tag.RowsAffected()
}

// strike takes the server away.
func (c *chaos) strike() {
	c.disasters++
	if c.disaster == asynchronous { // it lags
		c.sql(c.standby, "ALTER SYSTEM SET primary_conninfo = ''")
		c.sql(c.standby, "SELECT pg_reload_conf()")
		time.Sleep(500 * time.Millisecond)
	}
	require.NoError(c.t, c.server.Crash())
	if c.disaster == restarts {
		require.NoError(c.t, c.server.Resume())
		return
	}

	require.NoError(c.t, c.standby.Promote())
	c.server, c.standby = c.standby, c.server
	require.NoError(c.t, c.standby.Follow(c.server))
	c.confirm()
}

// A chaosHost is a process; answers come in the order of the requests.
type chaosHost struct {
	mu  sync.Mutex
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func (h *chaosHost) stop() {
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait()
}

// start starts a host.
func (c *chaos) start(i int) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestChaosHost$", "-test.timeout=60m")
	cmd.Env = append(os.Environ(), chaosDatabase+"="+c.url, chaosEffects+"="+c.effects)
	in, err := cmd.StdinPipe()
	require.NoError(c.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, cmd.Start())

	h := c.hosts[i]
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cmd, h.in, h.out = cmd, in, bufio.NewScanner(out)
}

// spawn asks a host for a run, and returns its id, or "" if there is no answer.
func (h *chaosHost) spawn(tool, key string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := fmt.Fprintln(h.in, tool, key); err != nil {
		return ""
	}
	for h.out.Scan() {
		if answer, ok := strings.CutPrefix(h.out.Text(), key+" "); ok {
			return answer
		}
	}
	return ""
}

// client spawns runs, and retries each until it is acknowledged.
func (c *chaos) client(ctx context.Context, i int) {
	for n := 0; ctx.Err() == nil; n++ {
		key := fmt.Sprintf("key_%d_%d", i, n)
		tool := []string{"safe", "unsafe"}[n%2]
		for ctx.Err() == nil {
			if id := c.hosts[rand.IntN(chaosHosts)].spawn(tool, key); strings.HasPrefix(id, "bg_") {
				c.mu.Lock()
				c.acked[key] = id
				c.mu.Unlock()
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
	}
}

// disturb does what hosts have to survive.
func (c *chaos) disturb(ctx context.Context) {
	for n := 1; ctx.Err() == nil; n++ {
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
		i := rand.IntN(chaosHosts)
		switch {
		case n%9 == 4:
			c.strike()
		case n%6 == 2:
			process := c.hosts[i].cmd.Process
			_ = process.Signal(standStill)
			time.Sleep(chaosLease * 3 / 2)
			_ = process.Signal(syscall.SIGCONT)
			c.stills++
		default:
			c.hosts[i].stop()
			c.start(i)
			c.kills++
		}
	}
}

// verify waits until all runs have ended, and looks at what they did.
func (c *chaos) verify() {
	t := c.t
	e, err := postgres.Open(t.Context(), c.url, postgres.Options{Poll: -1})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	began := time.Now()
	var active []engine.Run
	for {
		active, err = e.List(t.Context(), engine.Query{Active: true}) // it may fail until the last disaster is over
		if err == nil && len(active) == 0 || time.Since(began) > 2*time.Minute {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.NoError(t, err)
	for _, r := range active {
		t.Errorf("stuck: %s is %s, attempt %d", r.ID, r.Status, r.Attempt)
	}

	runs, err := e.List(t.Context(), engine.Query{})
	require.NoError(t, err)
	keys, outcomes := map[string]int{}, map[string]int{}
	byKey := map[string]engine.Run{}
	for _, r := range runs {
		keys[r.IdempotencyKey]++
		byKey[r.IdempotencyKey] = r
		outcome := string(r.Status)
		if r.Error != nil {
			outcome = string(r.Error.Kind)
		}
		outcomes[r.Tool+" "+outcome]++
	}
	lost := 0
	for key, id := range c.acked {
		if c.disaster == asynchronous && keys[key] == 0 {
			lost++
			continue
		}
		require.Equal(t, 1, keys[key], "%s: runs of one key", key)
		require.Equal(t, id, byKey[key].ID, key)
	}

	repeated, superseded := c.acts(runs)
	t.Logf("%d runs acknowledged, %d of them lost, %d stored; %d kills, %d hosts that stood still, %d times a %s; %v; %d unsafe effects repeated, %d superseded; drained in %v",
		len(c.acked), lost, len(runs), c.kills, c.stills, c.disasters, c.disaster, outcomes, repeated, superseded, time.Since(began).Round(100*time.Millisecond))
	require.NotZero(t, len(c.acked))
	require.NotZero(t, c.disasters)
	if c.disaster != asynchronous {
		require.Zero(t, repeated, "what must not run twice")
		require.Zero(t, superseded, "effects of an attempt after a later one has begun")
	}
}

// acts compares what runs did with what is stored. It returns the number of repetitions of what
// must not run twice, and the number of effects that came after a later attempt had begun.
func (c *chaos) acts(runs []engine.Run) (repeated, superseded int) {
	data, err := os.ReadFile(c.effects)
	require.NoError(c.t, err)
	attempts, times := map[string]int{}, map[string]int{}
	for line := range strings.Lines(string(data)) {
		var id, what string
		var attempt int
		_, err := fmt.Sscan(line, &id, &attempt, &what)
		require.NoError(c.t, err, line)
		if attempt < attempts[id] {
			superseded++
		}
		attempts[id] = attempt
		if what == "effect" {
			times[id]++
		}
	}

	for _, r := range runs {
		if r.Tool == "unsafe" && times[r.ID] > 1 {
			repeated++
		}
		if r.Status == engine.StatusSucceeded {
			require.NotZero(c.t, times[r.ID], "%s has not had its effect", r.ID)
		}
	}
	return repeated, superseded
}

// TestChaosHost is a host of TestChaos: it spawns what its input asks for.
func TestChaosHost(t *testing.T) {
	url := os.Getenv(chaosDatabase)
	if url == "" {
		t.Skip("a host of TestChaos")
	}
	effects, err := os.OpenFile(os.Getenv(chaosEffects), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	var acting sync.RWMutex // held from the check to the act
	act := func(ctx context.Context, run engine.Run, what string) error {
		acting.RLock()
		defer acting.RUnlock()
		if err := background.MayAct(ctx); err != nil {
			return err
		}
		_, err := effects.WriteString(run.ID + " " + strconv.Itoa(run.Attempt) + " " + what + "\n")
		return err
	}
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, standStill)
	go func() { // until the process is killed
		for range stops {
			acting.Lock()
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			time.Sleep(10 * time.Millisecond) // another thread may get the signal, a little later
			acting.Unlock()
		}
	}()

	var e *postgres.Engine
	for e == nil {
		if e, err = postgres.Open(t.Context(), url, postgres.Options{}); err != nil {
			time.Sleep(50 * time.Millisecond) // the server is being restarted
		}
	}
	var m *background.Manager
	for m == nil {
		m, err = background.New(t.Context(), background.Config{
			Engine: e, LeaseTTL: chaosLease, PerSession: 200, PerHost: 200, Attempts: 1000, RecordQuota: 1 << 40, RetainRuns: 1 << 30, // nothing is removed
			Executor: func(ctx context.Context, run engine.Run, sink *output.Sink) (background.Outcome, error) {
				if err := act(ctx, run, "begin"); err != nil {
					return background.Outcome{}, err
				}
				_, _ = fmt.Fprintln(sink.Stdout(), "working")
				select {
				case <-ctx.Done():
					return background.Outcome{}, context.Cause(ctx)
				case <-time.After(time.Duration(50+rand.IntN(250)) * time.Millisecond):
				}
				if err := act(ctx, run, "effect"); err != nil { // the process may have stood still
					return background.Outcome{}, err
				}
				return background.Outcome{Result: json.RawMessage(`"done"`)}, nil
			},
			Readmit: func(_ context.Context, run engine.Run) error {
				if run.Attempt > 0 && run.Tool == "unsafe" {
					return errors.New("it may have had its effect")
				}
				return nil
			},
		})
		if err != nil {
			time.Sleep(50 * time.Millisecond)
		}
	}

	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		tool, key, _ := strings.Cut(lines.Text(), " ")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		run, err := m.Spawn(ctx, "s", background.SpawnRequest{Tool: tool, Args: json.RawMessage(`{}`), IdempotencyKey: key, Silent: true})
		cancel()
		if err != nil {
			fmt.Println(key, "refused", strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		fmt.Println(key, run.ID)
	}
}
