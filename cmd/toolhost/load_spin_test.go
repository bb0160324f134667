package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/wire"
)

// The shape of TestLoadSpinning: as many runs as the defaults allow.
const (
	spinners       = 64
	spinPerSession = 5
	loadCounts     = "counts" // counts to spinWork, and ends
	spinWork       = 250_000_000
)

// spinning is one run of TestLoadSpinning.
type spinning struct {
	*load
	clients []*loadClient // each with its spinning runs
	running int           // spinning runs
}

// TestLoadSpinning has as many runs spin as the defaults allow, and asks for the
// server's health, a small call and the end of a run meanwhile. All have to be
// answered, and each spinning run has to end when it is stopped.
//
// With TOOLHOST_LOAD=30s it asks for so long and measures, and then measures how
// fast as many runs with work to do get it done.
//
//	TOOLHOST_TEST=full TOOLHOST_LOAD=30s go test ./cmd/toolhost -run '^TestLoadSpinning$' -count=3 -v -timeout=30m
func TestLoadSpinning(t *testing.T) {
	fulltest.Only(t, "puts a server under load")
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be asked to end there")
	}
	s := &spinning{load: newLoad(t)}
	s.zoo = spinZoo(t)
	config := "limits: {timeout: 1h, background: 1h, fuel: 10000000000000}\n"
	s.server = startLoaded(t, s.zoo, config)
	s.asker = newLoadClient(s.server.base, 999, s.seed)
	require.NoError(t, s.asker.callSmall(t.Context()))

	s.spin(1)
	s.ask("1 spins")
	s.spin(spinners)
	s.ask("64 spin")
	s.stopAll()
	s.work()

	require.Empty(t, s.server.end(), "lines of level error in the server's log")
	if s.whole {
		s.figures.report(loadJSON)
	}
}

func spinZoo(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, invoke := range map[string]*plugintest.Program{
		loadEcho:   plugintest.Do().Echo(),
		loadSpins:  plugintest.Do().Spin(),
		loadCounts: plugintest.Do().Count(spinWork).Echo(),
	} {
		m := plugintest.Manifest(name)
		m.Tools[0].Hints = abi.Hints{Readonly: true, SupportsBackground: true}
		wasm := plugintest.Plugin{Manifest: m, Invoke: invoke}.Wasm()
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".wasm"), wasm, 0o600))
	}
	return dir
}

// spin starts runs until so many are running.
func (s *spinning) spin(most int) {
	ctx := s.t.Context()
	for n := s.running; n < most; n++ {
		if n%spinPerSession == 0 {
			s.clients = append(s.clients, newLoadClient(s.server.base, n/spinPerSession, s.seed))
		}
		require.NoError(s.t, s.clients[n/spinPerSession].spawnSpinning(ctx, loadSpins))
	}
	s.running = most
	s.until("all are running", func(stats httpapi.Stats) bool { return stats.Host.Running == most })
}

func (c *loadClient) spawnSpinning(ctx context.Context, tool string) error {
	var run wire.Run
	args := c.args("")
	if _, err := c.do(ctx, "spawn", "POST", "/v1/runs", wire.Spawn{Tool: tool, Args: json.RawMessage(args)}, &run, isCreated); err != nil {
		return err
	}
	c.told(&loadRun{id: run.TaskID, tool: tool, args: args})
	return nil
}

// ask asks for everything in turn, and takes the time.
func (s *spinning) ask(when string) {
	ctx := s.t.Context()
	s.asker.figures = newLatencies()
	for began, n := time.Now(), 0; n < 3 || s.whole && time.Since(began) < s.duration; n++ {
		_, err := s.asker.do(ctx, "health, "+when, "GET", "/healthz", nil, nil, isOK)
		require.NoError(s.t, err)
		args := s.asker.args("hello")
		r, err := s.asker.call(ctx, "call, "+when, wire.Call{Tool: loadEcho, Args: json.RawMessage(args)})
		require.NoError(s.t, err)
		require.JSONEq(s.t, args, string(r.Value))

		c := s.clients[n%len(s.clients)]
		run := c.runs[0]
		c.runs = c.runs[1:]
		began := time.Now()
		require.NoError(s.t, c.stop(ctx, run, true))
		s.asker.figures.add("stop, "+when, time.Since(began))
		require.NoError(s.t, c.endSpinning(ctx, run))
		require.NoError(s.t, c.spawnSpinning(ctx, loadSpins))
	}
	if s.whole {
		s.figures.latencies(s.asker.figures)
	}
}

// endSpinning waits for the end of a run that was stopped.
func (c *loadClient) endSpinning(ctx context.Context, r *loadRun) error {
	run, err := c.untilEnd(ctx, r)
	if err != nil {
		return err
	}
	return expect(run.Status == wire.StatusCanceled, "%s: %s", r.id, run.Status)
}

// untilEnd waits for the end of a run.
func (c *loadClient) untilEnd(ctx context.Context, r *loadRun) (run wire.Run, err error) {
	for !run.Done && err == nil {
		_, err = c.do(ctx, "wait for the end", "GET", "/v1/runs/"+r.id+"?wait=30s", nil, &run, isOK)
	}
	return run, err
}

// stopAll stops what still spins, all sessions at once.
func (s *spinning) stopAll() {
	errs := make([]error, len(s.clients))
	var all sync.WaitGroup
	for i, c := range s.clients {
		all.Go(func() {
			for _, run := range c.runs {
				errs[i] = errors.Join(errs[i], c.stop(s.t.Context(), run, true), c.endSpinning(s.t.Context(), run))
			}
			c.runs = nil
			c.http.CloseIdleConnections()
		})
	}
	all.Wait()

	require.NoError(s.t, errors.Join(errs...))
	s.until("none is running", func(stats httpapi.Stats) bool { return stats.Host.Running == 0 })
}

// work measures how fast as many runs get done what they have to do.
func (s *spinning) work() {
	if !s.whole {
		return
	}
	ctx := s.t.Context()
	began, cpu := time.Now(), s.server.cpu()
	for n := range spinners {
		require.NoError(s.t, s.clients[n/spinPerSession].spawnSpinning(ctx, loadCounts))
	}
	for _, c := range s.clients {
		for _, r := range c.runs {
			run, err := c.untilEnd(ctx, r)
			require.NoError(s.t, err)
			require.Equal(s.t, wire.StatusSucceeded, run.Status, "%+v", run.Error)
		}
	}
	done := float64(spinners) * spinWork / 1e9
	s.figures.add("runs with work, by the clock", done/time.Since(began).Seconds(), "G rounds/s")
	s.figures.add("runs with work, by the processor", done/(s.server.cpu()-cpu).Seconds(), "G rounds/s")
}
