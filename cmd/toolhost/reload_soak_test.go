package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/server"
)

// Under load, plugins and the configuration are reloaded many times: no call fails, and
// nothing is left behind. TOOLHOST_SOAK=1 makes it 5,000 reloads of plugins and 1,000 of
// the configuration.
func TestReloadSoak(t *testing.T) {
	fulltest.Only(t, "puts a server under load")
	ofPlugins, ofConfiguration := 60, 30
	if os.Getenv("TOOLHOST_SOAK") != "" {
		ofPlugins, ofConfiguration = 5000, 1000
	}

	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "toolhost.yaml")
	put := func(n int) {
		m := plugintest.Manifest("steady")
		m.Needs.Clock = true
		m.Version = fmt.Sprintf("1.0.%d", n%2)
		next := filepath.Join(dir, "next")
		require.NoError(t, os.WriteFile(next, plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Say(abi.StreamResult, "1")}.Wasm(), 0o600))
		require.NoError(t, os.Rename(next, filepath.Join(dir, "steady.wasm")))
	}
	configure := func(n int) {
		text := fmt.Sprintf("plugins: [%s]\nlimits: {timeout: %ds}\ngrants: {steady: {clock: true, random: %v}}\n", dir, 60+n%2, n%2 == 0)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	put(0)
	configure(0)

	var log bytes.Buffer // only this goroutine writes: calls log nothing at this level
	a := &app{ui: ui{out: &log, err: &log}}
	require.NoError(t, a.load(flagsOf("--config", file)))
	s, done, err := a.open(t.Context(), nil)
	require.NoError(t, err)
	defer done()
	r := &reloader{app: a, service: s}

	call := func() error {
		got, err := s.Call(context.Background(), server.Request{Session: "soak", Tool: "steady", Args: json.RawMessage("{}")})
		if err == nil && got.Kind != abi.Success {
			err = fmt.Errorf("%+v", got)
		}
		return err
	}
	require.NoError(t, call())

	var calling sync.WaitGroup
	var calls atomic.Int64
	ended := make(chan struct{})
	for range 2 {
		calling.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				if err := call(); err != nil {
					t.Error(err)
					return
				}
				calls.Add(1)
			}
		})
	}

	var before resources
	for n := range ofPlugins {
		put(n + 1)
		_, err := s.Reload(t.Context())
		require.NoError(t, err)
		if n*ofConfiguration/ofPlugins != (n+1)*ofConfiguration/ofPlugins {
			configure(n*ofConfiguration/ofPlugins + 1)
			out, err := r.reload(t.Context())
			require.NoError(t, err)
			require.NotEmpty(t, out.Changed)
			log.Reset()
		}
		require.NoError(t, call()) // a file that is replaced before its plugin was compiled is lost, and calls say so
		if n == ofPlugins/3 {
			before = resourcesNow()
		}
	}
	close(ended)
	calling.Wait()

	after := resourcesNow()
	t.Logf("%d calls; before %+v, after %+v", calls.Load(), before, after)
	require.Positive(t, calls.Load())
	require.LessOrEqual(t, after.goroutines, before.goroutines+5)
	require.LessOrEqual(t, after.files, before.files+5)
	require.LessOrEqual(t, after.heap, before.heap+before.heap/2+32<<20)
	require.LessOrEqual(t, after.mappings, before.mappings+50, "compiled code")
}

// resources are what a process holds.
type resources struct {
	goroutines, files, mappings int
	heap                        uint64 // bytes
}

func resourcesNow() resources {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/proc/self/fd") // empty elsewhere
	maps, _ := os.ReadFile("/proc/self/maps")
	return resources{runtime.NumGoroutine(), len(files), bytes.Count(maps, []byte("\n")), m.HeapInuse}
}
