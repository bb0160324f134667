package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/pkg/background/sqlite"
)

const (
	waitingFolder  = "TOOLHOST_WAITING_FOLDER" // set: this process is a host
	waitingParents = 6
	waitingSteps   = 40
)

// TestKilledWaiting kills hosts whose runs wait for one child after the other, which must
// not be executed twice. TOOLHOST_CRASH_KILLS says how often.
func TestKilledWaiting(t *testing.T) {
	fulltest.Only(t, "kills processes")
	if os.Getenv(waitingFolder) != "" {
		t.Skip("this is a host of the harness")
	}
	kills, folder := number(t, "TOOLHOST_CRASH_KILLS", 12), t.TempDir()
	for i := 0; ; i++ {
		cmd := exec.Command(os.Args[0], "-test.run=^TestWaitingHost$", "-test.timeout=10m")
		cmd.Env = append(os.Environ(), waitingFolder+"="+folder)
		cmd.Stderr = t.Output()
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if lines.Text() == "ready" && i < kills {
				time.Sleep(time.Duration(rand.IntN(25)) * time.Millisecond)
				_ = cmd.Process.Kill()
			}
		}
		if cmd.Wait() == nil {
			break
		}
		require.Less(t, i, kills, "the last host failed")
	}

	data, err := os.ReadFile(filepath.Join(folder, "effects"))
	require.NoError(t, err)
	executed := make(map[string]int)
	for line := range strings.Lines(string(data)) {
		executed[line]++
	}
	for line, n := range executed {
		require.Equal(t, 1, n, "executed twice: %s", line)
	}

	store, err := sqlite.Open(t.Context(), folder, sqlite.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	var whole strings.Builder
	for step := range waitingSteps + 1 {
		fmt.Fprintf(&whole, "step %d\n", step)
	}
	runs, err := store.List(t.Context(), engine.Query{})
	require.NoError(t, err)
	require.Len(t, runs, waitingParents*(waitingSteps+1))
	lost := 0
	for _, run := range runs {
		if run.Tool == "once" {
			require.True(t, run.Status == engine.StatusSucceeded || run.Error.Kind == engine.KindOrphaned, "%s is %s", run.ID, run.Status)
			if run.Error != nil {
				lost++
			}
			continue
		}
		require.Equal(t, engine.StatusSucceeded, run.Status, "%v", run.Error)
		chunk, err := store.Tail(t.Context(), run.ID, 0, 1<<20)
		require.NoError(t, err)
		require.Equal(t, whole.String(), string(chunk.Data), "attempt %d", run.Attempt)
	}
	t.Logf("%d children executed, %d ends lost with a host", len(executed), lost)
}

// TestWaitingHost is the process that is killed.
func TestWaitingHost(t *testing.T) {
	folder := os.Getenv(waitingFolder)
	if folder == "" {
		t.Skip("a host of TestKilledWaiting")
	}
	effects, err := os.OpenFile(filepath.Join(folder, "effects"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	store, err := sqlite.Open(t.Context(), folder, sqlite.Config{})
	require.NoError(t, err)
	require.Zero(t, store.Stats().Problems)
	m, err := background.New(t.Context(), background.Config{
		Engine: store, PerSession: 12, PerHost: 24, Attempts: 1000,
		Readmit: func(_ context.Context, run engine.Run) error {
			if run.Attempt > 0 && run.StateSize == 0 && run.Tool == "once" {
				return errors.New("may have an effect twice")
			}
			return nil
		},
		Executor: func(ctx context.Context, run engine.Run, sink *output.Sink) (background.Outcome, error) {
			if run.Tool == "once" {
				_, err := fmt.Fprintln(effects, run.ID)
				return background.Outcome{}, err
			}
			step := 0
			if state := background.StateOf(ctx); state != nil {
				step = int(state[0])
			}
			_, _ = fmt.Fprintf(sink.Stdout(), "step %d\n", step)
			if step == waitingSteps {
				return background.Outcome{}, nil
			}
			next := int64(step + 1)
			return background.Outcome{Suspend: &background.Suspension{
				State: []byte{byte(next)}, Await: []string{background.ChildID(run.ID, next)},
				Children: []background.Child{{Op: next, SpawnRequest: background.SpawnRequest{Tool: "once", Silent: true}}},
			}}, nil
		},
	})
	require.NoError(t, err)

	var ids []string
	for i := range waitingParents {
		spawned, err := m.Spawn(t.Context(), "s", background.SpawnRequest{Tool: "waits", IdempotencyKey: fmt.Sprint(i)})
		require.NoError(t, err)
		ids = append(ids, spawned.ID)
	}
	fmt.Println("ready")
	_, err = m.Check(t.Context(), "s", background.CheckRequest{IDs: ids, Wait: 5 * time.Minute, Until: background.UntilAll})
	require.NoError(t, err)
	require.NoError(t, m.Close(t.Context()))
	require.NoError(t, store.Close())
}
