package background

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

const alice, bob = "alice", "bob"

// newManager returns a manager that is closed when the test ends. It then checks that
// no run is still active and no permit is held. Call it in a bubble, which detects
// leaked goroutines.
func newManager(t *testing.T, cfg Config) *Manager {
	t.Helper()
	if cfg.Executor == nil {
		cfg.Executor = script
	}
	m, err := New(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		done, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, m.Close(done))
		active, err := m.engine.List(context.Background(), engine.Query{Active: true})
		require.NoError(t, err)
		require.Empty(t, active, "runs left active")
		require.Zero(t, m.admission.active(), "slots left")
	})
	return m
}

// counts returns the counts of a manager, without the size of its records.
func counts(m *Manager) Stats {
	s := m.Stats()
	s.RecordBytes, s.RecordQuota = 0, 0
	return s
}

// script is an executor whose tools do what their names say.
func script(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
	switch run.Tool {
	case "echo":
		_, _ = sink.Stdout().Write([]byte("echo " + string(run.Args) + "\n"))
		return Outcome{Summary: "echoed", Result: run.Args}, nil
	case "sleep": // polite: ends when it is asked to
		select {
		case <-sink.Stopping():
			return Outcome{}, errors.New("interrupted by a signal")
		case <-ctx.Done():
			return Outcome{}, context.Cause(ctx)
		}
	case "second":
		time.Sleep(time.Second)
		return Outcome{Result: json.RawMessage(`"slept"`)}, nil
	case "deaf": // ignores the request, ends when its context does
		<-ctx.Done()
		return Outcome{}, ctx.Err()
	case "undead": // ignores both for an hour
		time.Sleep(time.Hour)
		return Outcome{}, ctx.Err()
	case "stubborn": // ends after the request with a result
		<-sink.Stopping()
		return Outcome{Result: json.RawMessage(`{"partial":true}`)}, nil
	case "halfway": // ends after the request with an error and a result
		<-sink.Stopping()
		return Outcome{Result: json.RawMessage(`{"partial":true}`)}, &Error{Kind: engine.KindToolError, Message: "half done"}
	case "panic":
		panic("secret of the host")
	}
	return Outcome{}, &Error{Kind: engine.KindToolError, Message: "unknown tool: " + run.Tool}
}

func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func spawn(t *testing.T, m *Manager, session, tool string) engine.Run {
	t.Helper()
	s, err := m.Spawn(t.Context(), session, SpawnRequest{Tool: tool})
	require.NoError(t, err)
	return s.Run
}

// spawned spawns a run, waits until it is idle or has ended, and returns its id.
func spawned(t *testing.T, m *Manager, session, tool string) string {
	t.Helper()
	id := spawn(t, m, session, tool).ID
	synctest.Wait()
	return id
}

func wait(t *testing.T, m *Manager, session string, id string) engine.Run {
	t.Helper()
	runs, err := awaited(t.Context(), m, session, []string{id}, UntilAny)
	require.NoError(t, err)
	require.Len(t, runs, 1)
	run := runs[0]
	run.Args = must(m.Payload(t.Context(), session, id, engine.PartArgs))
	run.Result = must(m.Payload(t.Context(), session, id, engine.PartResult))
	run.Content = must(m.Payload(t.Context(), session, id, engine.PartContent))
	return run
}

func check(t *testing.T, m *Manager, session string, req CheckRequest) Report {
	t.Helper()
	checked, err := m.Check(t.Context(), session, req)
	require.NoError(t, err)
	require.Nil(t, checked.Missing)
	require.Len(t, checked.Reports, 1)
	report := checked.Reports[0]
	if report.Status.Terminal() {
		report.Result = must(m.Payload(t.Context(), session, report.ID, engine.PartResult))
	}
	return report
}

// awaited waits until any or all of the runs have ended, and returns them all.
func awaited(ctx context.Context, m *Manager, session string, ids []string, until Until) (runs []engine.Run, err error) {
	known, missing, err := m.reader.find(ctx, session, ids)
	if err == nil && missing != nil {
		err = missing
	}
	if err == nil {
		err = m.reader.await(ctx, session, known, waitLimits{until: until})
	}
	if err != nil {
		return nil, err
	}
	for _, h := range known {
		if h, err = m.reader.relook(ctx, session, h); err != nil {
			return nil, err
		}
		runs = append(runs, h.run)
	}
	return runs, nil
}

func active(t *testing.T, m *Manager, session string) []engine.Run {
	t.Helper()
	return must(m.List(t.Context(), engine.Query{Session: session, Active: true}))
}

func ended(t *testing.T, m *Manager, session string) []engine.Run {
	t.Helper()
	return slices.DeleteFunc(must(m.List(t.Context(), engine.Query{Session: session})), func(r engine.Run) bool { return !r.Status.Terminal() })
}

// already reports whether a run that was stopped has ended by itself.
func already(stopped engine.Run) bool {
	return stopped.Status.Terminal() && stopped.Status != engine.StatusCanceled
}

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewJSONHandler(w, nil)) }

// pendingOf returns the runs with a pending notice.
func pendingOf(t *testing.T, m *Manager, session string, max int) []engine.Run {
	t.Helper()
	runs, _, err := m.Pending(t.Context(), session, max)
	require.NoError(t, err)
	return runs
}
