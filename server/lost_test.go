package server

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/server/wire"
)

// A database that is deleted under the service is one of the problems an
// operator is shown, and nothing is acknowledged any more.
func TestStorageThatIsLost(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("nobody can delete a file that is open")
	}
	dir := filepath.Join(t.TempDir(), "data")
	s := open(t, Config{DataDir: dir}, "echo")
	require.NoError(t, s.StorageErr())
	require.Empty(t, s.Findings())
	require.NoError(t, os.Remove(filepath.Join(dir, "state.db")))

	_, err := s.Session("s").Spawn(t.Context(), SpawnRequest{Tool: "echo"})
	require.ErrorIs(t, err, engine.ErrStorageLost)
	require.ErrorIs(t, s.StorageErr(), engine.ErrStorageLost)
	require.Len(t, s.Findings(), 1)
	require.Contains(t, s.Findings()[0].Error, "deleted or replaced")
	require.Equal(t, 1, s.Stats().Storage.Problems)
	require.NotEmpty(t, s.Stats().Storage.Failed)
}

// A fullEngine is one whose disk is full: no run and no end is stored.
type fullEngine struct {
	*memory.Engine
	full  atomic.Bool
	later chan struct{} // ends are stored once it is closed; nil: at once
}

type fullWorker struct {
	engine.Worker
	engine *fullEngine
}

type fullLease struct {
	engine.Lease
	engine *fullEngine
}

func (e *fullEngine) Join(ctx context.Context, info engine.WorkerInfo) (engine.Worker, error) {
	w, err := e.Engine.Join(ctx, info)
	return &fullWorker{w, e}, err
}

// Check is what sqlite has.
func (e *fullEngine) Check(context.Context) error {
	if e.full.Load() {
		return fmt.Errorf("writing the database: %w", ErrFull)
	}
	return nil
}

func (w *fullWorker) Submit(ctx context.Context, run engine.Run, permits *engine.Permits) error {
	if err := w.engine.Check(ctx); err != nil {
		return err
	}
	return w.Worker.Submit(ctx, run, permits)
}

func (w *fullWorker) Start(ctx context.Context, id string) (engine.Lease, error) {
	l, err := w.Worker.Start(ctx, id)
	return &fullLease{l, w.engine}, err
}

func (l *fullLease) Complete(ctx context.Context, status engine.Status, b engine.Beat, end engine.End) (engine.Run, error) {
	if l.engine.later != nil {
		<-l.engine.later
	}
	if err := l.engine.Check(ctx); err != nil {
		return engine.Run{}, err
	}
	return l.Lease.Complete(ctx, status, b, end)
}

// The agent is notified of an end that is not stored, and that it is not.
func TestUnsavedEnd(t *testing.T) {
	disk := &fullEngine{Engine: memory.New(), later: make(chan struct{})}
	s := open(t, Config{Engine: disk}, "echo")
	id := s.spawn("s", "echo", `{"n":1}`)
	disk.full.Store(true)
	close(disk.later)
	run := s.settled("s", id)
	require.True(t, run.Unsaved)

	answer := func(tool, args string) map[string]any {
		r, err := s.Call(t.Context(), Request{Session: "s", Tool: tool, Args: json.RawMessage(args)})
		require.NoError(t, err)
		var out map[string]any
		require.NoError(t, json.Unmarshal(r.Value, &out))
		return out
	}
	report := answer("check_background", `{"task_id":"`+id+`","wait_seconds":0}`)
	require.Equal(t, "succeeded", report["status"])
	require.Equal(t, true, report["unsaved"])
	require.Equal(t, false, report["done"])
	require.Contains(t, report["next"], "not stored yet")
	require.Equal(t, map[string]any{"n": 1.0}, report["result"])
	stopped := answer("stop_background", `{"task_id":"`+id+`"}`)
	require.Equal(t, true, stopped["unsaved"])
	require.Contains(t, stopped["next"], "a crash would lose it")
	listed := answer("check_background", `{"list":true}`)
	require.Equal(t, true, listed["tasks"].([]any)[0].(map[string]any)["unsaved"])

	disk.full.Store(false)
	report = answer("check_background", `{"task_id":"`+id+`"}`) // it waits until that is stored
	require.Equal(t, true, report["done"])
	require.NotContains(t, report, "unsaved")
	require.NotContains(t, report, "next")
}

// A server whose disk is full is not ready, and says to its clients that nothing can be
// stored now, until there is room.
func TestFullDisk(t *testing.T) {
	disk := &fullEngine{Engine: memory.New()}
	s := open(t, Config{Engine: disk}, "echo")
	require.NoError(t, s.Ready(t.Context()))
	disk.full.Store(true)
	require.ErrorIs(t, s.Ready(t.Context()), ErrFull)
	_, err := s.Session("s").Spawn(t.Context(), SpawnRequest{Tool: "echo"})
	require.Equal(t, wire.CodeUnavailable, ReasonOf(err).Code)
	require.Equal(t, ReasonOf(engine.ErrFull), ReasonOf(err))
	disk.full.Store(false)
	require.NoError(t, s.Ready(t.Context()))
	s.settled("s", s.spawn("s", "echo", `{"n":1}`))
}

// While the service closes it can say what it waits for.
func TestWaitsFor(t *testing.T) {
	s := open(t, Config{DataDir: filepath.Join(t.TempDir(), "data")}, "sleeper")
	require.Empty(t, s.WaitsFor(), "it does not close")
	run, err := s.Session("s").Spawn(t.Context(), SpawnRequest{Tool: "sleeper"})
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	closed := make(chan error, 1)
	go func() { closed <- s.Close(ctx) }()
	for !strings.HasPrefix(s.WaitsFor(), "runs and calls") { // it may name the run while it waits for a reload
		time.Sleep(time.Millisecond)
	}
	require.Regexp(t, `^runs and calls: `+run.TaskID+` of sleeper, since \d\d:\d\d:\d\d`, s.WaitsFor())
	cancel()
	require.NoError(t, <-closed)
	require.Empty(t, s.WaitsFor())
	require.NotEqual(t, engine.StatusRunning, run.Status)
}
