package sqlite

import (
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// Runs of a database that did not know it say what their tool is part of, once the engine
// is told: in their records and for a search, also if they have not ended.
func TestDescribe(t *testing.T) {
	const runs = 2*describedAtOnce + 7
	dir := t.TempDir()
	path := filepath.Join(dir, databaseName)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	c, err := connect(path, "rw")
	require.NoError(t, err)
	require.NoError(t, c.script(fmt.Sprintf("%s PRAGMA application_id = %d; PRAGMA user_version = 5; BEGIN;", strings.Join(migrations[:5], ""), applicationID)))
	for i := range runs {
		run := engine.Run{ID: fmt.Sprint("bg_", i), Session: "s", Tool: []string{"primes", "gone"}[i%2], Version: "v1", Origin: engine.OriginSpawned, CreatedAt: time.Now(), Status: engine.StatusSucceeded}
		log, finished := &extent{}, driver.Value(int64(i+1))
		if i == 0 {
			run.Status, log, finished = engine.StatusQueued, nil, nil
		}
		record, err := stored{Run: run, Log: log}.encode()
		require.NoError(t, err)
		require.NoError(t, c.run(`INSERT INTO runs (seq, id, session, finished, record) VALUES (?, ?, 's', ?, ?)`, int64(i+1), run.ID, finished, record))
	}
	require.NoError(t, c.script("UPDATE runs SET record = CAST('{}' AS BLOB) WHERE id = 'bg_4'; COMMIT")) // it is damaged
	require.NoError(t, c.close())

	found := func(e *tester, f engine.Filter) int {
		runs, err := e.List(t.Context(), engine.Query{Filter: f})
		require.NoError(t, err)
		return len(runs)
	}
	math := engine.Provider{Kind: "wasm", Plugin: "math", PluginVersion: "1.0.0"}
	asked := 0
	of := func(tool, version string) engine.Provider {
		asked++
		if tool != "primes" {
			return engine.Provider{}
		}
		require.Equal(t, "v1", version)
		return math
	}
	for start := range 2 {
		e := opened(t, dir)
		require.Equal(t, start*(runs/2), found(e, engine.Filter{Plugin: "math"}))
		require.NoError(t, e.Describe(t.Context(), of))
		require.Equal(t, runs-1, asked, "each run once, but for the damaged one")
		require.Equal(t, runs/2, found(e, engine.Filter{Plugin: "math"}))
		require.Equal(t, runs/2, found(e, engine.Filter{Kind: "wasm", Tool: "primes"}))
		for _, id := range []string{"bg_0", fmt.Sprint("bg_", runs-1)} {
			run, err := e.Get(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, math, run.Provider, id)
		}
		gone, err := e.Get(t.Context(), "bg_1")
		require.NoError(t, err)
		require.Zero(t, gone.Provider)
		require.NoError(t, e.Close())
	}

	fresh := opened(t, t.TempDir())
	require.NoError(t, fresh.Describe(t.Context(), func(string, string) engine.Provider { panic("it has no older runs") }))
	require.NoError(t, fresh.Close())
}
