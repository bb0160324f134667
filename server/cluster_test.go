package server

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/pgtest"
	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/postgres"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/wire"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// clusterHost is a host of its own, as on another machine, with a version of the plugin exec.
func clusterHost(t *testing.T, database string, version byte, change ...func(*Config)) service {
	t.Helper()
	e, err := postgres.Open(t.Context(), database, postgres.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })

	cfg := scriptConfig(Config{Engine: e, DataDir: t.TempDir(), Runs: RunsConfig{LeaseTTL: 2 * time.Second}})
	s := service{t: t, logs: &testlog.Buffer{}}
	cfg.Folders = []plugins.Folder{{Path: "zoo", FS: fstest.MapFS{"exec.wasm": execVersion(t, version)}}}
	for _, f := range change {
		f(&cfg)
	}
	cfg.Logger = slog.New(slog.NewJSONHandler(s.logs, nil))
	s.Service, err = Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close(done()) }) // a test may have closed its engine
	return s
}

// TestHosts: what one host has spawned is checked, read, waited for and stopped at another.
func TestHosts(t *testing.T) {
	database := pgtest.Schema(t)
	a, b, c := clusterHost(t, database, 0), clusterHost(t, database, 0), clusterHost(t, database, 0)

	id := a.spawnScript(`console.log("here"); for (;;) await sleep(20)`)
	c.said(alice, id, "here\n")
	require.Equal(t, engine.StatusRunning, b.run(id).Status)
	b.stop(alice, id, "")
	require.Equal(t, engine.StatusCanceled, c.settled(alice, id).Status)

	short := b.spawnScript(`await sleep(50); return "done"`)
	require.Equal(t, `"done"`, string(a.settled(alice, short).Result))
	require.NoError(t, c.Ready(t.Context()))
}

// TestSpawnedElsewhere: what a full host spawns is executed by one that has its version of
// the plugin, and hosts know of each other.
func TestSpawnedElsewhere(t *testing.T) {
	database := pgtest.Schema(t)
	named := func(name string) func(*Config) {
		return func(cfg *Config) {
			cfg.Name, cfg.Version, cfg.Runs.PerHost, cfg.Runs.PerOwner = name, "v1.2.3", 1, 5
			cfg.Runs.LeaseTTL = 2 * time.Minute // a busy machine renews it late
		}
	}
	a := clusterHost(t, database, 0, named("a"))
	clusterHost(t, database, 1, named("b"))
	c := clusterHost(t, database, 0, named("c"))

	const endless = `for (;;) await sleep(20)`
	first, second := a.spawnScript(endless), a.spawnScript(endless)
	runs := func() string {
		hosts, err := c.Hosts(t.Context())
		require.NoError(t, err)
		text := ""
		for _, h := range hosts.Hosts {
			require.Equal(t, wire.HostLive, h.State)
			require.Equal(t, "v1.2.3", h.Version)
			require.Equal(t, h.Name == "c", h.Self)
			text += fmt.Sprintf("%s: %d of %d ", h.Name, h.Running, h.PerHost)
		}
		return text
	}
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		require.Equal(t, "a: 1 of 1 b: 0 of 1 c: 1 of 1 ", runs(), "%+v %+v", a.run(first), a.run(second))
	}, time.Minute, 10*time.Millisecond)
	_, err := a.Session(alice).Spawn(t.Context(), SpawnRequest{Tool: Exec, Args: code("return 1")})
	require.ErrorIs(t, err, background.ErrHostLimit, "the host that has a place has another version")

	hosts, err := a.Hosts(t.Context())
	require.NoError(t, err)
	require.Len(t, hosts.Differences, 1)
	require.Equal(t, "exec", hosts.Differences[0].Plugin)
	require.Equal(t, [][]string{{"a", "c"}, {"b"}}, [][]string{hosts.Differences[0].Builds[0].Hosts, hosts.Differences[0].Builds[1].Hosts})
	for _, id := range []string{first, second} {
		a.stop(alice, id, "")
		require.Equal(t, engine.StatusCanceled, c.settled(alice, id).Status, "%+v", c.run(id).Error)
	}
}

// becomesWaiting waits until a run waits, outside of a bubble.
func (s service) becomesWaiting(id string) {
	s.t.Helper()
	for hangs := time.Now().Add(2 * time.Minute); s.run(id).Status != wire.StatusWaiting; time.Sleep(time.Millisecond) {
		require.True(s.t, time.Now().Before(hangs), s.logs.String())
	}
}

// TestWakesElsewhere: a run that waits continues on a host that never had its version of the
// plugin, after the host that began it is gone.
func TestWakesElsewhere(t *testing.T) {
	database := pgtest.Schema(t)
	a := clusterHost(t, database, 0)
	b := clusterHost(t, database, 1)

	id := a.spawnScript(`await sleep(1500); return (await tools.count({text: "b c"})).words`)
	a.becomesWaiting(id)
	version := a.run(id).ToolVersion
	require.NoError(t, a.Close(done()))
	require.NoDirExists(t, filepath.Join(b.cfg.DataDir, "versions", version))
	require.Equal(t, "2", string(b.settled(alice, id).Result), "%+v", b.run(id).Error)
	require.Len(t, b.kept(version), 2, "the plugin, and what it starts with")
}

// TestHostTakesOver: a host that is gone without a word leaves its runs to another one: those
// that may be repeated run again.
func TestHostTakesOver(t *testing.T) {
	database := pgtest.Schema(t)
	a := clusterHost(t, database, 0)
	id := a.spawnScript(`console.log("began"); await sleep(100000); return 1`)
	a.becomesWaiting(id)
	queued := a.spawnScript(`await sleep(700); return 2`)
	a.becomesWaiting(queued)
	deaf := a.store.engine.(*postgres.Engine)
	require.NoError(t, deaf.Close()) // from now on nothing that a does is stored

	b := clusterHost(t, database, 0)
	require.Equal(t, "2", string(b.settled(alice, queued).Result), "%+v", b.run(queued).Error)
	b.stop(alice, id, "")
	require.Equal(t, engine.StatusCanceled, b.settled(alice, id).Status)
	require.ErrorIs(t, a.Ready(t.Context()), ErrUnreachable)
}
