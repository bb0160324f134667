package server

import (
	"context"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/examples/pluginbuild"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/plugins"
)

// TestGoPlugin takes a plugin as a compiler makes it through its life: built
// and sealed, called, spawned, checked while it works, and stopped.
func TestGoPlugin(t *testing.T) {
	dir, cache := t.TempDir(), plugintest.CacheDir()
	h, err := host.New(t.Context(), host.Config{CacheDir: cache})
	require.NoError(t, err)
	source := pluginbuild.Source{Name: "primes", Dir: filepath.Join("..", "examples", "plugins", "primes")}
	require.NoError(t, pluginbuild.Build(t.Context(), h, source, dir))
	require.NoError(t, h.Close(t.Context()))

	s := service{t: t, logs: &testlog.Buffer{}}
	s.Service, err = Open(t.Context(), Config{
		Folders: []plugins.Folder{plugins.Dir(dir)}, CacheDir: cache, Limits: Limits{Fuel: 1e12, Background: time.Hour}, Runs: RunsConfig{Grace: time.Hour},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	require.Empty(t, s.Problems())

	t.Run("call", func(t *testing.T) {
		r := s.call(alice, "primes", `{"limit":100}`)
		require.JSONEq(t, `{"limit":100,"count":25,"largest":97}`, string(r.Value))
		require.Contains(t, s.refused(alice, "primes", `{"limit":-1}`), "/limit: expected at least 0, found -1")
	})
	t.Run("spawn", func(t *testing.T) {
		report := s.check(alice, s.spawn(alice, "primes", `{"limit":100000}`), longest+`,"max_chars":2048`)
		require.Equal(t, "succeeded", report["status"])
		require.Equal(t, map[string]any{"limit": 100_000.0, "count": 9592.0, "largest": 99_991.0}, report["result"])
		require.Equal(t, "Count primes", report["title"])
		require.Contains(t, report["output"].(map[string]any)["text"], "primes below ")
		require.Equal(t, "Found 9592 primes up to 100000; the largest is 99991.", report["summary"])
	})
	t.Run("stop", func(t *testing.T) {
		id := s.spawn(alice, "primes", `{"limit":1000000000}`)
		for s.check(alice, id, `,"wait_seconds":0`)["progress"] == nil {
			runtime.Gosched()
		}
		require.Equal(t, "sieving", s.check(alice, id, `,"wait_seconds":0`)["detail"])
		require.Equal(t, object{"task_id": id, "status": "canceled", "stopped": true}, s.stop(alice, id, ""))
		report := s.check(alice, id, "")
		require.Equal(t, "canceled", report["status"])
		require.Less(t, report["progress"].(map[string]any)["done"], 1e9, "in the middle of it")
	})
	t.Run("resume", func(t *testing.T) {
		cfg := Config{Folders: []plugins.Folder{plugins.Dir(dir)}, CacheDir: cache, DataDir: t.TempDir(), Limits: Limits{Fuel: 1e12, Background: time.Hour}}
		restart := func() service {
			s := service{t: t, logs: &testlog.Buffer{}}
			s.Service, err = Open(t.Context(), cfg)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close(done())) })
			return s
		}
		s := restart()
		id := s.spawn(alice, "primes", `{"limit":1000000000}`)
		until := func(done func(report object) bool) {
			for cursor := "0:0"; ; time.Sleep(time.Millisecond) {
				report := s.check(alice, id, `,"wait_seconds":0,"cursor":"`+cursor+`"`)
				require.Equal(t, false, report["done"], "%v", report["error"])
				if done(report) {
					return
				}
			}
		}
		until(func(report object) bool { // past the first checkpoint
			progress, _ := report["progress"].(map[string]any)
			return progress != nil && progress["done"].(float64) > 18e6
		})
		require.NoError(t, s.Close(done()))
		s = restart()
		until(func(report object) bool { // which is where the second attempt begins
			text, _ := report["output"].(map[string]any)["text"].(string)
			return strings.HasPrefix(text, "continuing at ") && !strings.HasPrefix(text, "continuing at 0")
		})
		s.stop(alice, id, `,"force":true`)
	})
	t.Run("out of fuel", func(t *testing.T) {
		r, err := s.Call(t.Context(), Request{Tool: "primes", Args: []byte(`{"limit":1000000000}`), Limits: Limits{Fuel: 10_000_000}})
		require.ErrorIs(t, err, host.ErrFuel)
		require.Equal(t, abi.LimitFuel, r.Limit)
		require.EqualValues(t, 10_000_000, r.Usage.Fuel)
	})
}
