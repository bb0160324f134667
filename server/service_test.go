package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/plugins"
)

// What cannot be loaded is a problem; a Service without any tool is one too.
func TestOpen(t *testing.T) {
	s := openFolder(t, Config{}, fstest.MapFS{
		"broken.wasm": {Data: []byte("text")}, "echo.wasm": {Data: zoo()["echo"].Wasm()},
	})
	require.Len(t, s.Problems(), 1)
	require.Contains(t, s.Problems()[0].String(), "zoo/broken.wasm: module: malformed wasm")
	require.True(t, s.call(alice, "echo", "{}").IsSuccess())

	empty := openFolder(t, Config{}, fstest.MapFS{})
	require.Empty(t, empty.Definitions(alice))
	_, err := empty.Call(t.Context(), Request{Tool: "echo"})
	require.ErrorIs(t, err, plugins.ErrNoTool)
}

func TestOpenFails(t *testing.T) {
	_, err := Open(done(), Config{Folders: []plugins.Folder{{Path: "zoo", FS: fstest.MapFS{}}}})
	require.ErrorIs(t, err, context.Canceled)
	_, err = Open(t.Context(), Config{Runs: RunsConfig{PerSession: -1}})
	require.ErrorContains(t, err, "PerSession")
	_, err = Open(t.Context(), Config{CacheDir: "service_test.go"})
	require.ErrorContains(t, err, "compile cache: ")
}

// Close waits for what runs; when its context ends it ends the runs too. No
// goroutine is left: a bubble would find it.
func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "sleeper", "echo")
		short := s.agent(alice, SpawnBackground, `{"tool":"sleeper","args":{},"timeout_seconds":10}`)["task_id"].(string)
		long := s.spawn(alice, "sleeper", "{}")
		synctest.Wait()

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		closed := make(chan error)
		before := time.Now()
		go func() { closed <- s.Close(ctx) }()
		synctest.Wait()
		require.Equal(t, "the server is shutting down", s.refused(alice, SpawnBackground, `{"tool":"sleeper","args":{}}`))
		r, err := s.Call(t.Context(), Request{Session: alice, Tool: "echo"})
		require.ErrorIs(t, err, host.ErrClosed)
		require.Equal(t, abi.Result{Kind: abi.ToolError, Error: "the server is shutting down"}, r)
		require.Equal(t, "running", s.check(alice, long, `,"wait_seconds":0`)["status"], "what runs can be looked at")

		require.NoError(t, <-closed)
		require.Equal(t, time.Minute, time.Since(before))
		require.Equal(t, map[string]any{"kind": "timeout", "message": "The run's deadline of 10s passed"}, s.check(alice, short, "")["error"])
		require.Equal(t, "queued", s.check(alice, long, "")["status"], "it has done nothing yet, and begins anew with the next host")
		require.NoError(t, s.Close(t.Context()), "twice is once")
	})
}

// A loop that never calls the host cannot keep it from closing, nor can a call
// that is waited for.
func TestCloseEndsCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "spin", "sleeper")
		id := s.spawn(alice, "spin", "{}")
		started, ended := make(chan bool), make(chan error)
		go func() {
			_, err := s.Call(t.Context(), Request{Tool: "sleeper", Progress: func(host.Progress) { close(started) }})
			ended <- err
		}()
		<-started
		require.NoError(t, s.Close(done()))
		require.ErrorIs(t, <-ended, host.ErrClosed)
		require.Equal(t, "queued", s.check(alice, id, "")["status"])
	})
}

// Callers of all kinds at once each get their own answer, whatever the others'
// plugins do.
func TestConcurrentCalls(t *testing.T) {
	s := open(t, Config{MaxLimits: Limits{Fuel: 2_000_000, Memory: 4 << 20, Output: 1 << 20}, Runs: RunsConfig{PerHost: 100}})
	expect := func(tool string, kind abi.Kind, err error) func(int) error {
		return func(i int) error {
			r, got := s.Call(context.Background(), Request{Session: fmt.Sprint(i), Tool: tool})
			if r.Kind != kind || !errors.Is(got, err) {
				return fmt.Errorf("%s: %v %w", tool, r, got)
			}
			return nil
		}
	}
	kinds := []func(i int) error{
		func(i int) error {
			args := fmt.Sprintf(`{"n":%d}`, i)
			r, err := s.Call(context.Background(), Request{Session: fmt.Sprint(i), Tool: "echo", Args: []byte(args)})
			if string(r.Value) != args {
				return fmt.Errorf("echo of %s: %v %w", args, r, err)
			}
			return err
		},
		func(i int) error { // the same in the background
			session, args := fmt.Sprint(i), fmt.Sprintf(`{"n":%d}`, i)
			r, err := s.Call(context.Background(), Request{Session: session, Tool: SpawnBackground, Args: []byte(`{"tool":"echo","args":` + args + `}`)})
			if err != nil {
				return err
			}
			_, id, _ := strings.Cut(string(r.Value), `"task_id":"`)
			id, _, _ = strings.Cut(id, `"`)
			r, err = s.Call(context.Background(), Request{Session: session, Tool: CheckBackground, Args: []byte(`{"task_id":"` + id + `"` + longest + `}`)})
			if !strings.Contains(string(r.Value), `"result":`+args) {
				return fmt.Errorf("run %q of %s: %v %w", id, args, r, err)
			}
			return err
		},
		expect("fails", abi.ToolError, nil),
		expect("traps", abi.Internal, host.ErrTrap),
		expect("spin", abi.LimitReached, host.ErrFuel),
		expect("hog", abi.LimitReached, host.ErrMemory),
		expect("flood", abi.LimitReached, host.ErrOutput),
		expect("needy", abi.ToolError, host.ErrDenied),
		expect("exits", abi.ToolError, nil),
		expect("nothing", abi.ToolError, plugins.ErrNoTool),
	}
	var callers sync.WaitGroup
	errs := make([]error, 100)
	for i := range errs {
		callers.Go(func() { errs[i] = kinds[i%len(kinds)](i) })
	}
	callers.Wait()
	require.NoError(t, errors.Join(errs...))
}
