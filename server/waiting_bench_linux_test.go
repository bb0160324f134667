package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/examples/plugins/script"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
)

// BenchmarkWaitingScripts measures so many scripts that sleep for a week, each a run of
// exec in a data folder: what they take of memory and disk, a restart, and how late one is
// that wakes among them. 100,000 need some minutes:
//
//	go test ./server -run xxx -bench WaitingScripts -benchtime 100000x
func BenchmarkWaitingScripts(b *testing.B) {
	wasm, err := script.FS.ReadFile("exec.wasm")
	require.NoError(b, err)
	cfg := Config{
		DataDir: b.TempDir(), CacheDir: plugintest.CacheDir(),
		Folders: []plugins.Folder{{Path: "built-in", FS: fstest.MapFS{"exec.wasm": {Data: wasm}}}},
		Grants:  map[string]plugins.Grant{"exec": {Clock: true, Tools: []string{abi.EveryTool}}},
		Runs:    RunsConfig{PerSession: 1 << 20, RecordQuota: 1 << 40},
	}
	s, err := Open(b.Context(), cfg)
	require.NoError(b, err)

	used, began := processorTime(b), time.Now()
	spawnWaiting(b, s, b.N)
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(b.N) }
	b.ReportMetric(each(processorTime(b)-used), "cpu-µs/run")
	b.ReportMetric(each(time.Since(began)), "µs/run")
	runtime.GC()
	b.ReportMetric(resident(b), "resident-MB")
	require.NoError(b, s.Close(context.Background()))
	b.ReportMetric(float64(sizeOf(b, cfg.DataDir))/float64(b.N), "disk-bytes/run")

	began = time.Now()
	s, err = Open(b.Context(), cfg)
	require.NoError(b, err)
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "restart-ms")
	b.ReportMetric(0, "ns/op") // of all of them: says nothing

	const wakes = 20
	late := 0.0
	for range wakes {
		run, err := s.Session(alice).Spawn(b.Context(), SpawnRequest{Tool: "exec", Args: code(`const due = Date.now() + 1000; await sleep(1000); return Date.now() - due`)})
		require.NoError(b, err)
		checked, err := s.runs.Check(b.Context(), alice, background.CheckRequest{IDs: []string{run.TaskID}, Wait: time.Minute})
		require.NoError(b, err)
		require.Equal(b, engine.StatusSucceeded, checked.Reports[0].Run.Status)
		result, err := s.engine.Payload(b.Context(), run.TaskID, engine.PartResult)
		require.NoError(b, err)
		var ms float64
		require.NoError(b, json.Unmarshal(result, &ms))
		late += ms
	}
	b.ReportMetric(late/wakes, "late-ms")
	require.NoError(b, s.Close(context.Background()))
}

// spawnWaiting spawns n scripts, and returns when all of them wait.
func spawnWaiting(b *testing.B, s *Service, n int) {
	const spawners, sessions = 32, 1000
	var next atomic.Int64
	var all sync.WaitGroup
	for range spawners {
		all.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				session := fmt.Sprintf("session-%d", i%sessions)
				for {
					_, err := s.Session(session).Spawn(b.Context(), SpawnRequest{Tool: "exec", Args: code(fmt.Sprintf(`await sleep(7 * 24 * 3600e3); return %d`, i))})
					if err == nil {
						break
					}
					if !errors.Is(err, background.ErrHostLimit) {
						b.Error(err)
						return
					}
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	for s.runs.Stats().Active > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	require.Empty(b, s.runs.Stats().Failed)
}

// resident is what this process has of memory, in megabytes.
func resident(b *testing.B) float64 {
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(b, err)
	var kb float64
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	_, err = fmt.Sscan(rest, &kb)
	require.NoError(b, err)
	return kb / 1024
}

// sizeOf is how many bytes the files below a folder have.
func sizeOf(b *testing.B, dir string) (n int64) {
	require.NoError(b, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	}))
	return n
}
