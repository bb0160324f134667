package background

import (
	"context"
	"encoding/json"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// artifact reads an artifact of an ended run.
func artifact(t *testing.T, m *Manager, session, id, name string) string {
	t.Helper()
	file, err := m.Open(t.Context(), session, id, name)
	require.NoError(t, err)
	data, err := io.ReadAll(file)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	return string(data)
}

// However a run ended, both of its artifacts exist, have the same form, and contain the
// output so far.
func TestArtifactsHoweverARunEnds(t *testing.T) {
	for name, c := range map[string]struct {
		then   func(t *testing.T, m *Manager, id string)
		work   func(context.Context, *output.Sink) (Outcome, error)
		status engine.Status
		kind   engine.ErrorKind
		log    string
	}{
		"succeeded": {status: engine.StatusSucceeded, log: "out\n[stderr] err\n",
			work: func(context.Context, *output.Sink) (Outcome, error) {
				return Outcome{Result: json.RawMessage(`{"n":1}`)}, nil
			}},
		"failed": {status: engine.StatusFailed, kind: engine.KindToolError, log: "out\n[stderr] err\n",
			work: func(context.Context, *output.Sink) (Outcome, error) {
				return Outcome{}, &Error{Kind: engine.KindToolError, Message: "boom"}
			}},
		"canceled": {status: engine.StatusCanceled, log: "out\n[stderr] err\n[system] Canceled by request.\n",
			work: func(ctx context.Context, _ *output.Sink) (Outcome, error) { <-ctx.Done(); return Outcome{}, ctx.Err() },
			then: func(t *testing.T, m *Manager, id string) {
				_, err := m.Stop(t.Context(), alice, id, StopRequest{Force: true})
				require.NoError(t, err)
			}},
		"deadline": {status: engine.StatusFailed, kind: engine.KindTimeout, log: "out\n[stderr] err\n",
			work: func(ctx context.Context, _ *output.Sink) (Outcome, error) { <-ctx.Done(); return Outcome{}, ctx.Err() }},
		"panic": {status: engine.StatusFailed, kind: engine.KindInternal, log: "out\n[stderr] err\n",
			work: func(context.Context, *output.Sink) (Outcome, error) { panic("hunter2") }},
	} {
		bubble(t, name, func(t *testing.T) {
			m := newManager(t, Config{Logger: logTo(new(testlog.Buffer)), Executor: func(ctx context.Context, _ engine.Run, sink *output.Sink) (Outcome, error) {
				_, _ = sink.Stdout().Write([]byte("out\n"))
				_, _ = sink.Stderr().Write([]byte("err\n"))
				return c.work(ctx, sink)
			}})
			id := spawned(t, m, alice, "tool")
			if c.then != nil {
				c.then(t, m, id)
			}
			run := wait(t, m, alice, id)
			require.Equal(t, c.log, artifact(t, m, alice, id, engine.OutputLog))
			var got engine.Envelope
			text := artifact(t, m, alice, id, engine.ResultJSON)
			require.NotContains(t, text, "hunter2", "no text of the host's own")
			require.NoError(t, json.Unmarshal([]byte(text), &got))
			require.Equal(t, id, got.TaskID)
			require.Equal(t, 1, got.Attempt)
			require.Equal(t, c.status, got.Status)
			require.EqualValues(t, len(c.log), got.OutputBytes)
			require.True(t, got.FinishedAt.Equal(run.FinishedAt))
			if c.kind != "" {
				require.Equal(t, c.kind, got.Error.Kind)
			}
			for _, n := range pendingOf(t, m, alice, 0) {
				require.NotContains(t, NoticeText(n), "hunter2")
			}
		})
	}
}

func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		id := spawned(t, m, alice, "sleep")
		began := time.Now()
		beat := func() time.Duration { return must(m.Get(t.Context(), alice, id)).HeartbeatAt.Sub(began) }
		require.Zero(t, beat(), "at the start")
		time.Sleep(5 * time.Second)
		require.Equal(t, 4*time.Second, beat(), "and every 2 s")
	})
}

// When the end of a run is reported, it is stored, its slot is free, and its waiters are awake.
func TestOrderAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m *Manager
		var checked bool
		m = newManager(t, Config{PerSession: 1, OnNotice: func(n engine.Run) {
			require.Equal(t, engine.StatusSucceeded, must(m.engine.Get(t.Context(), n.ID)).Status)
			require.JSONEq(t, `"slept"`, result(t, m, alice, n.ID))
			require.Contains(t, artifact(t, m, alice, n.ID, engine.ResultJSON), "succeeded")
			_, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "echo", Silent: true})
			require.NoError(t, err)
			checked = true
		}})
		wait(t, m, alice, spawn(t, m, alice, "second").ID)
		synctest.Wait()
		require.True(t, checked)
	})
}

// A log that is read while its run starts is attributed to the attempt that wrote it,
// even if the record was read before the start.
func TestTailOfARunThatStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		store := gated(open)
		m := newManager(t, Config{Engine: store, Executor: func(_ context.Context, _ engine.Run, sink *output.Sink) (Outcome, error) {
			_, _ = sink.Stdout().Write([]byte("working\n"))
			time.Sleep(time.Hour)
			return Outcome{}, nil
		}})
		id := spawned(t, m, alice, "tool")
		store.after = onFirst("get", func() {
			close(open)
			synctest.Wait()
		})
		chunk, err := m.Tail(t.Context(), alice, id, 0, 100)
		require.NoError(t, err)
		require.Equal(t, engine.Chunk{Data: []byte("working\n"), End: 8, Attempt: 1}, chunk)
		wait(t, m, alice, id)
		require.Equal(t, 1, must(m.Tail(t.Context(), alice, id, 0, 100)).Attempt)
	})
}
