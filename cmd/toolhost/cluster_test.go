package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/pglocal"
	"github.com/toolhost/toolhost/internal/pgtest"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/server/wire"
)

// clusterFor is how long servers are killed; by default for some seconds.
var clusterFor = taken("TOOLHOST_CLUSTER")

const clusterScript = `let sum = 0; for (let i = 1; i <= 6; i++) { console.log(i); await sleep(20 * i + 200 * (i % 3)); sum += i } return sum + NUMBER`

// TestKilledServers kills three servers on one PostgreSQL, one after the other, and starts
// them again, while clients spawn scripts at any of them and try again with the same key.
// Each run that was acknowledged ends once, with its result, or is told to have lost its host
// as often as a run is tried. TOOLHOST_CLUSTER says for how long, as in 10m.
func TestKilledServers(t *testing.T) {
	fulltest.Only(t, "kills servers")
	if runtime.GOOS == "windows" {
		t.Skip("PostgreSQL is started on Unix only")
	}
	database, err := pglocal.Start()
	pgtest.Need(t, err)
	t.Cleanup(database.Stop)
	duration := 8 * time.Second
	if clusterFor != "" {
		duration, err = time.ParseDuration(clusterFor)
		require.NoError(t, err)
	}

	c := &killedCluster{t: t, dir: t.TempDir(), database: database.URL, acked: map[string]int{}}
	for i := range c.servers {
		c.start(i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var clients sync.WaitGroup
	for n := range 4 {
		clients.Go(func() { c.client(ctx, n) })
	}
	kills := 0
	for ; ctx.Err() == nil; kills++ {
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
		i := rand.IntN(len(c.servers))
		p := c.server(i)
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		c.start(i)
	}
	clients.Wait()
	c.verify()
	require.Less(t, c.orphaned, len(c.acked))
	t.Logf("%d runs acknowledged, %d kills of %d servers; %d runs ended as orphaned", len(c.acked), kills, len(c.servers), c.orphaned)
}

// TestHostsCommand: servers are listed while they are there, and as lost when they are gone
// without a word.
func TestHostsCommand(t *testing.T) {
	fulltest.Only(t, "starts PostgreSQL")
	if runtime.GOOS == "windows" {
		t.Skip("PostgreSQL is started on Unix only")
	}
	database, err := pglocal.Start()
	pgtest.Need(t, err)
	t.Cleanup(database.Stop)
	c := &killedCluster{t: t, dir: t.TempDir(), database: database.URL}
	for i := range c.servers {
		c.start(i)
	}
	listed := func() string {
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"hosts", "--addr", c.servers[0].base}, nil, &out, &errs)
		require.Zero(t, code, errs.String())
		return out.String()
	}
	becomes := func(pattern string) {
		t.Helper()
		require.Eventually(t, func() bool { return regexp.MustCompile(pattern).MatchString(listed()) }, time.Minute, 10*time.Millisecond, pattern)
	}

	name, err := os.Hostname()
	require.NoError(t, err)
	require.Regexp(t, `^HOST +NAME +VERSION +SINCE +HEARTBEAT +RUNNING +PLUGINS +STATE\n`+
		`(?:[0-9a-z]+ +`+regexp.QuoteMeta(name)+` +\S+ +20[0-9-]+ [0-9:]+ +[0-9]+s ago +0 of 64 +[0-9]+ +live(?:, this one)?\n){3}$`, listed())
	require.Len(t, regexp.MustCompile("this one").FindAllString(listed(), -1), 1)

	require.NoError(t, c.servers[1].cmd.Process.Kill())
	becomes(`(?s)live.* lost\n`)
	require.NoError(t, c.servers[2].cmd.Process.Signal(os.Interrupt))
	becomes(`(?m)^HOST.*\n.*this one\n.* lost\n$`)
}

type killedCluster struct {
	t             *testing.T
	dir, database string

	orphaned int

	mu      sync.Mutex
	servers [3]*loadProcess
	acked   map[string]int // numbers by the id of the run
}

func (c *killedCluster) server(i int) *loadProcess {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.servers[i]
}

// start starts a server with a data folder of its own, which it keeps.
func (c *killedCluster) start(i int) {
	data := filepath.Join(c.dir, fmt.Sprint("data", i))
	if _, err := os.Stat(data); err != nil {
		require.NoError(c.t, os.Mkdir(data, 0o700))
		require.NoError(c.t, os.MkdirAll(plugintest.CacheDir(), 0o700))
		require.NoError(c.t, os.Symlink(plugintest.CacheDir(), filepath.Join(data, "cache")))
	}
	file := filepath.Join(c.dir, "toolhost.yaml")
	config := fmt.Sprintf("engine: %q\nlease: 2s\nexec: true\nstarter: false\nbackground: {per_session: 200, retain_runs: 100000}\n", c.database)
	require.NoError(c.t, os.WriteFile(file, []byte(config), 0o600))
	p := startProcess(c.t, "toolhost-profiled", "serve", "--config", file, "--data", data, "--listen", "127.0.0.1:0")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers[i] = p
}

// ask sends a request to a server, whichever is there.
func (c *killedCluster) ask(ctx context.Context, method, path string, in, out any, headers ...string) error {
	to, err := client.New(c.server(rand.IntN(len(c.servers))).base, client.Options{Session: "cluster"})
	if err != nil {
		return err
	}
	defer to.Close()
	return to.Do(ctx, method, path, in, out, headers...)
}

// client spawns runs, and tries each until it is acknowledged.
func (c *killedCluster) client(ctx context.Context, n int) {
	for i := n; ctx.Err() == nil; i += 4 {
		args, _ := json.Marshal(map[string]string{"code": fmt.Sprintf("const NUMBER = %d; %s", i, clusterScript)})
		in := map[string]any{"tool": "exec", "args": json.RawMessage(args)}
		for ctx.Err() == nil {
			var run wire.Run
			if c.ask(ctx, "POST", "/v1/runs", in, &run, "Idempotency-Key", fmt.Sprint("key ", i)) == nil {
				c.mu.Lock()
				c.acked[run.TaskID] = i
				c.mu.Unlock()
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
	}
}

// verify waits for the end of all runs, at any server.
func (c *killedCluster) verify() {
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Minute) // only what is stuck gets there
	defer cancel()
	require.NotEmpty(c.t, c.acked)
	numbers := map[int]string{}
	for id, number := range c.acked {
		var run wire.Run
		for !run.Done {
			require.NoError(c.t, ctx.Err(), "stuck: %s is %s, attempt %d", id, run.Status, run.Attempt)
			require.NoError(c.t, c.ask(ctx, "GET", "/v1/runs/"+id+"?wait=10s", nil, &run))
		}
		if run.Error != nil && run.Error.Kind == wire.KindOrphaned {
			c.orphaned++
		} else {
			require.Equal(c.t, wire.StatusSucceeded, run.Status, "%s: %+v", id, run.Error)
			require.Equal(c.t, fmt.Sprint(21+number), string(run.Result))
		}
		require.Empty(c.t, numbers[number], "two runs of one key")
		numbers[number] = id
	}
}
