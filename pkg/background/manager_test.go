package background

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

func TestNewRefusesBadConfig(t *testing.T) {
	for field, cfg := range map[string]Config{
		"Executor":   {},
		"PerSession": {Executor: script, PerSession: -1},
		"PerHost":    {Executor: script, PerHost: -1},
		"Grace":      {Executor: script, Grace: -1},
		"OutputCap":  {Executor: script, OutputCap: -1},
		"Timeout":    {Executor: script, Timeout: 2 * time.Hour},
		"Retention":  {Executor: script, Retention: -1},
		"Parked":     {Executor: script, Parked: -1},
		"Attempts":   {Executor: script, Attempts: -1},
		"NoticeTTL":  {Executor: script, NoticeTTL: -1},
		"EndSession": {Executor: script, EndSession: "some"},
	} {
		_, err := New(t.Context(), cfg)
		var bad *FieldError
		require.ErrorAs(t, err, &bad)
		require.ErrorIs(t, err, ErrInvalid)
		require.Equal(t, field, bad.Field)
	}
}

func TestDefaults(t *testing.T) {
	cfg, err := Config{Executor: script}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, 5, cfg.PerSession)
	require.Equal(t, 64, cfg.PerHost)
	require.Equal(t, 5*time.Second, cfg.Grace)
	require.Equal(t, 262144, cfg.OutputCap)
	require.Equal(t, 300*time.Second, cfg.Timeout)
	require.Equal(t, 3600*time.Second, cfg.MaxTimeout)
	require.Equal(t, 24*time.Hour, cfg.Retention)
	require.Equal(t, 500, cfg.RetainRuns)
	require.Equal(t, 32, cfg.Parked)
	require.Equal(t, 5, cfg.Schedules)
	require.Equal(t, 3, cfg.Attempts)
	require.Equal(t, 7*24*time.Hour, cfg.NoticeTTL)
	require.Equal(t, EndParked, cfg.EndSession)
}

func TestSpawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		s, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: " second ", Args: json.RawMessage(`{"a":1}`)})
		require.NoError(t, err)
		require.Regexp(t, regexp.MustCompile(`^bg_[a-z2-7]{26}$`), s.ID)
		require.Equal(t, "second", s.Tool, "trimmed")
		require.Equal(t, "Background second", s.Title)
		require.Equal(t, engine.StatusQueued, s.Status)
		require.Equal(t, engine.OriginSpawned, s.Origin)
		require.True(t, s.SignalOnCompletion)
		require.Equal(t, 300*time.Second, s.Timeout)
		require.Zero(t, s.Elapsed(time.Now()))

		synctest.Wait()
		run, err := m.Get(t.Context(), alice, s.ID)
		require.NoError(t, err)
		require.Equal(t, engine.StatusRunning, run.Status)
		require.Equal(t, 1, run.Attempt)

		run = wait(t, m, alice, s.ID)
		require.Equal(t, engine.StatusSucceeded, run.Status)
		require.JSONEq(t, `"slept"`, string(run.Result))
		require.Equal(t, time.Second, run.Elapsed(time.Now().Add(time.Hour)))
		require.Nil(t, run.Error)
	})
}

func TestSpawnRefusesBadRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		for _, c := range []struct {
			session, field string
			req            SpawnRequest
		}{
			{"", "session", SpawnRequest{Tool: "echo"}},
			{alice, "tool", SpawnRequest{Tool: "  "}},
			{alice, "args", SpawnRequest{Tool: "echo", Args: json.RawMessage(`{"a":`)}},
			{alice, "title", SpawnRequest{Tool: "echo", Title: strings.Repeat("x", 121)}},
			{alice, "idempotency_key", SpawnRequest{Tool: "echo", IdempotencyKey: strings.Repeat("x", 129)}},
			{alice, "timeout_seconds", SpawnRequest{Tool: "echo", Timeout: -1}},
			{alice, "timeout_seconds", SpawnRequest{Tool: "echo", Timeout: time.Hour + 1}},
		} {
			_, err := m.Spawn(t.Context(), c.session, c.req)
			var bad *FieldError
			require.ErrorAs(t, err, &bad, c.field)
			require.Equal(t, c.field, bad.Field)
		}
		runs, err := m.engine.List(t.Context(), engine.Query{})
		require.NoError(t, err)
		require.Empty(t, runs)
	})
}

func TestHowRunsEnd(t *testing.T) {
	code := func(n int) *int { return &n }
	secret := errors.New("dial db at 10.0.0.1: password hunter2")
	for name, c := range map[string]struct {
		exec   Executor
		status engine.Status
		want   engine.RunError
	}{
		"result": {func(context.Context, engine.Run, *output.Sink) (Outcome, error) { return Outcome{}, nil },
			engine.StatusSucceeded, engine.RunError{}},
		"exit code 0": {func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			return Outcome{ExitCode: code(0)}, nil
		},
			engine.StatusSucceeded, engine.RunError{}},
		"exit code 2": {func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			return Outcome{ExitCode: code(2)}, nil
		},
			engine.StatusSucceeded, engine.RunError{}},
		"tool error": {func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			return Outcome{}, fmt.Errorf("wrapped: %w", &Error{Kind: engine.KindToolError, Message: "no such \x1b[31mfile", Err: secret})
		}, engine.StatusFailed, engine.RunError{Kind: engine.KindToolError, Message: "no such file"}},
		"fuel": {func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			return Outcome{}, &Error{Kind: "fuel_exhausted", Message: "out of fuel after 100 units"}
		}, engine.StatusFailed, engine.RunError{Kind: "fuel_exhausted", Message: "out of fuel after 100 units"}},
		"connection required": {func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			return Outcome{}, &Error{Kind: "connection_required", Message: "connect github first"}
		}, engine.StatusFailed, engine.RunError{Kind: "connection_required", Message: "connect github first"}},
		"any error is internal": {func(context.Context, engine.Run, *output.Sink) (Outcome, error) { return Outcome{}, secret },
			engine.StatusFailed, engine.RunError{Kind: engine.KindInternal, Message: "An internal error occurred"}},
		"internal hides its message": {func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			return Outcome{}, &Error{Kind: engine.KindInternal, Message: secret.Error()}
		}, engine.StatusFailed, engine.RunError{Kind: engine.KindInternal, Message: "An internal error occurred"}},
		"no kind is internal": {func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			return Outcome{}, &Error{Message: secret.Error()}
		}, engine.StatusFailed, engine.RunError{Kind: engine.KindInternal, Message: "An internal error occurred"}},
		"nil *Error is internal": {func(context.Context, engine.Run, *output.Sink) (Outcome, error) { return Outcome{}, (*nilError)(nil) },
			engine.StatusFailed, engine.RunError{Kind: engine.KindInternal, Message: "An internal error occurred"}},
		"deadline of something else is internal": {func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			return Outcome{}, context.DeadlineExceeded
		}, engine.StatusFailed, engine.RunError{Kind: engine.KindInternal, Message: "An internal error occurred"}},
		"cancellation of something else is internal": {func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			return Outcome{}, context.Canceled
		}, engine.StatusFailed, engine.RunError{Kind: engine.KindInternal, Message: "An internal error occurred"}},
		"a tool that says what a stop says": {func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			return Outcome{}, &Error{Kind: engine.KindToolError, Message: "Canceled by request."}
		}, engine.StatusFailed, engine.RunError{Kind: engine.KindToolError, Message: "Canceled by request."}},
		"panic": {func(context.Context, engine.Run, *output.Sink) (Outcome, error) { panic(secret) },
			engine.StatusFailed, engine.RunError{Kind: engine.KindInternal, Message: "An internal error occurred"}},
		"goexit": {func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			runtime.Goexit()
			panic("unreachable")
		},
			engine.StatusFailed, engine.RunError{Kind: engine.KindInternal, Message: "An internal error occurred"}},
		"result that is no JSON": {func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			return Outcome{Result: json.RawMessage("hunter2")}, nil
		}, engine.StatusFailed, engine.RunError{Kind: engine.KindInternal, Message: "An internal error occurred"}},
		"deadline": {func(ctx context.Context, _ engine.Run, _ *output.Sink) (Outcome, error) {
			<-ctx.Done()
			return Outcome{}, ctx.Err()
		},
			engine.StatusFailed, engine.RunError{Kind: engine.KindTimeout, Message: "The run's deadline of 5m0s passed"}},
		"result after the deadline": {func(ctx context.Context, _ engine.Run, _ *output.Sink) (Outcome, error) {
			<-ctx.Done()
			return Outcome{}, nil
		},
			engine.StatusSucceeded, engine.RunError{}},
	} {
		bubble(t, name, func(t *testing.T) {
			var log testlog.Buffer
			m := newManager(t, Config{Executor: c.exec, Logger: logTo(&log)})
			run := wait(t, m, alice, spawn(t, m, alice, "tool").ID)
			require.Equal(t, c.status, run.Status)
			if c.want.Kind == "" {
				require.Nil(t, run.Error)
				return
			}
			require.Equal(t, c.want, *run.Error)
			shown, err := json.Marshal(check(t, m, alice, CheckRequest{IDs: []string{run.ID}}))
			require.NoError(t, err)
			require.NotContains(t, string(shown), "hunter2")
			if c.want.Kind == engine.KindInternal {
				require.Contains(t, log.String(), "internal error", "logged in full")
				require.Contains(t, log.String(), run.ID)
			}
			if name == "panic" {
				require.Contains(t, log.String(), "hunter2")
				require.Contains(t, log.String(), "manager_test.go", "with a stack")
			}
		})
	}
}

// nilError is an error type whose methods work on a nil pointer.
type nilError struct{}

func (*nilError) Error() string { return "nothing" }

func TestNilErrorPointerDoesNotCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{Logger: logTo(new(testlog.Buffer)), Executor: func(context.Context, engine.Run, *output.Sink) (Outcome, error) {
			return Outcome{}, (*Error)(nil)
		}})
		run := wait(t, m, alice, spawn(t, m, alice, "tool").ID)
		require.Equal(t, engine.KindInternal, run.Error.Kind)
	})
}

func TestRunSeesItsRecordAndTheValuesOfNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		var got engine.Run
		var value any
		var deadline time.Time
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
		m, err := New(ctx, Config{Executor: func(ctx context.Context, run engine.Run, _ *output.Sink) (Outcome, error) {
			got, value = run, ctx.Value(key{})
			deadline, _ = ctx.Deadline()
			return Outcome{}, ctx.Err()
		}})
		require.NoError(t, err)
		cancel() // ends neither the manager nor its runs
		s, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "tool", Args: json.RawMessage(`[1]`), Timeout: time.Minute})
		require.NoError(t, err)
		require.NoError(t, m.Close(t.Context()))
		require.Equal(t, s.ID, got.ID)
		require.Equal(t, 1, got.Attempt)
		require.JSONEq(t, `[1]`, string(got.Args))
		require.Equal(t, "v", value)
		require.True(t, deadline.Equal(time.Now().Add(time.Minute)))
		run, err := m.Get(t.Context(), alice, s.ID)
		require.NoError(t, err)
		require.Equal(t, engine.StatusSucceeded, run.Status)
	})
}

func TestIdempotencyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{PerSession: 1})
		req := SpawnRequest{Tool: "second", Args: json.RawMessage(`{"a":1,"b":[2]}`), IdempotencyKey: "k"}
		first, err := m.Spawn(t.Context(), alice, req)
		require.NoError(t, err)
		require.False(t, first.Reused)

		req.Args = json.RawMessage(` {"b":[2], "a":1}`)
		again, err := m.Spawn(t.Context(), alice, req)
		require.NoError(t, err, "no permit is needed")
		require.True(t, again.Reused)
		require.Equal(t, first.ID, again.ID)

		require.Equal(t, engine.StatusSucceeded, wait(t, m, alice, first.ID).Status)
		again, err = m.Spawn(t.Context(), alice, req)
		require.NoError(t, err)
		require.Equal(t, first.ID, again.ID)
		require.Equal(t, engine.StatusSucceeded, again.Status, "as it is now")

		for _, other := range []SpawnRequest{
			{Tool: "echo", Args: req.Args, IdempotencyKey: "k"},
			{Tool: "second", Args: json.RawMessage(`{"a":1}`), IdempotencyKey: "k"},
		} {
			_, err = m.Spawn(t.Context(), alice, other)
			require.ErrorIs(t, err, ErrKeyReused)
			require.Contains(t, err.Error(), first.ID)
		}
		foreign, err := m.Spawn(t.Context(), bob, req)
		require.NoError(t, err)
		require.NotEqual(t, first.ID, foreign.ID, "keys are a session's own")
	})
}

func TestIdempotencyKeyAtTheLastSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{PerSession: 1})
		got := make([]string, 16)
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() {
				s, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "sleep", IdempotencyKey: "k"})
				require.NoError(t, err)
				got[i] = s.ID
			})
		}
		all.Wait()
		for _, id := range got {
			require.Equal(t, got[0], id)
		}
	})
}

func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{RetainRuns: 3, Retention: time.Hour, NoticeTTL: 2 * time.Hour, MaxTimeout: 3 * time.Hour})
		sleeper, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "sleep", Timeout: 3 * time.Hour})
		require.NoError(t, err)
		unseen := spawned(t, m, alice, "echo")
		var ids []string
		for range 5 {
			s, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "echo", Silent: true})
			require.NoError(t, err)
			ids = append(ids, s.ID)
			time.Sleep(time.Second)
		}
		gone := func(id string) bool {
			_, err := m.Get(t.Context(), alice, id)
			return errors.Is(err, engine.ErrNotFound)
		}
		time.Sleep(pruneEvery)
		require.True(t, gone(ids[1]))
		require.False(t, gone(ids[2]), "the newest 3 are kept")
		require.False(t, gone(unseen), "whose notice nobody took is kept")
		require.Len(t, active(t, m, alice), 1)

		time.Sleep(time.Hour)
		require.True(t, gone(ids[4]), "no longer than the retention")
		require.False(t, gone(unseen))
		require.False(t, gone(sleeper.ID), "a running run is never removed")
		require.Len(t, pendingOf(t, m, alice, 0), 1)

		time.Sleep(time.Hour)
		require.True(t, gone(unseen), "until its notice expires")
	})
}

func TestWaitersOutliveRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{RetainRuns: 1})
		var ids []string
		for range 4 {
			ids = append(ids, spawn(t, m, alice, "second").ID)
		}
		runs, err := awaited(t.Context(), m, alice, ids, UntilAll)
		require.NoError(t, err)
		for i, run := range runs {
			require.Equal(t, ids[i], run.ID)
			require.Equal(t, engine.StatusSucceeded, run.Status)
		}
	})
}

func TestSecretsAreInNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testlog.Buffer
		m := newManager(t, Config{Logger: logTo(&log)})
		s, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "panic",
			Args: json.RawMessage(`{"deep":[{"Api-Key":"hunter2"}],"url":"example.org"}`)})
		require.NoError(t, err)
		wait(t, m, alice, s.ID)
		shown, err := json.Marshal(ended(t, m, alice))
		require.NoError(t, err)
		require.NotContains(t, string(shown)+log.String(), "hunter2")
		require.Contains(t, log.String(), "example.org")
	})
}

// Arguments that must not be stored are passed to the work and to nothing else.
func TestSecretArgumentsAreNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testlog.Buffer
		var got json.RawMessage
		m := newManager(t, Config{Logger: logTo(&log), Executor: func(_ context.Context, run engine.Run, _ *output.Sink) (Outcome, error) {
			got = run.Args
			return Outcome{}, errors.New("internal")
		}})
		events := m.Watch(t.Context(), alice)
		s, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "login", By: "operator", Version: "sha256:1",
			Args: json.RawMessage(`{"user":"ann","pin":"hunter2"}`), Stored: json.RawMessage(`{"user":"ann"}`), IdempotencyKey: "k"})
		require.NoError(t, err)
		wait(t, m, alice, s.ID)
		require.JSONEq(t, `{"user":"ann","pin":"hunter2"}`, string(got))
		run := payload(t, m.engine, s.ID)
		require.True(t, run.Secret)
		require.Equal(t, "operator", run.By)
		require.Equal(t, "sha256:1", run.Version)
		stored, err := json.Marshal(run)
		require.NoError(t, err)
		shown := fmt.Sprintf("%+v %+v", s, pendingOf(t, m, alice, 0))
		for len(events) > 0 {
			e, err := json.Marshal(<-events)
			require.NoError(t, err)
			shown += string(e)
		}
		require.NotContains(t, string(stored)+shown+log.String(), "hunter2")
		_, err = m.Spawn(t.Context(), alice, SpawnRequest{Tool: "login", Args: json.RawMessage(`{`), Stored: json.RawMessage(`{}`)})
		require.ErrorIs(t, err, ErrInvalid)
	})
}

func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{PerSession: 3, Logger: logTo(new(testlog.Buffer))})
		for _, tool := range []string{"echo", "echo", "nonsense", "panic"} {
			wait(t, m, alice, spawn(t, m, alice, tool).ID)
		}
		for range 3 {
			spawned(t, m, alice, "sleep")
		}
		_, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: "echo"})
		require.ErrorIs(t, err, engine.ErrSessionLimit)
		queued := fired(t, m, alice, "echo", "")
		require.Equal(t, Stats{Active: 3, PerHost: DefaultPerHost, Queued: 1, Spawned: 8, Succeeded: 2, Failed: map[engine.ErrorKind]int64{engine.KindToolError: 1, engine.KindInternal: 1},
			Refused: 1, Output: 16}, counts(m))
		_, err = m.Stop(t.Context(), alice, queued, StopRequest{})
		require.NoError(t, err)
		require.EqualValues(t, 1, m.Stats().Canceled)
	})
}

// A commit whose outcome is unknown leaves no run behind that nobody works on.
func TestSpawnThatWasStoredAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hooked(nil)
		store.after = func(method string) error {
			if method == "submit" {
				return errDisk
			}
			return nil
		}
		m := newManager(t, Config{Engine: store, Logger: logTo(new(testlog.Buffer))})
		require.Equal(t, engine.StatusSucceeded, wait(t, m, alice, spawn(t, m, alice, "echo").ID).Status)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := m.Spawn(ctx, alice, SpawnRequest{Tool: "echo"})
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, must(store.List(t.Context(), engine.Query{})), 1)
	})
}
