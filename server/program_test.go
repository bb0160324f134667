package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/wire"
)

// handler makes a tool of a function without arguments and without a result.
func handler(name string, f func(ctx context.Context, c *gotool.Call) error) gotool.Tool {
	return gotool.Tool{Name: name, Description: "For tests.", Hints: abi.Hints{SupportsBackground: true}, Handler: gotool.Handle(
		func(ctx context.Context, c *gotool.Call, _ struct{}) (gotool.None, error) {
			return gotool.None{}, f(ctx, c)
		})}
}

func idle(context.Context, *gotool.Call) error { return nil }

// Tools that call each other hold the slots of nobody else, however few there are.
func TestToolsThatCallTools(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var s service
		next := func(tool string) func(context.Context, *gotool.Call) error {
			return func(ctx context.Context, c *gotool.Call) error {
				time.Sleep(time.Second) // until all of them are at work
				r, err := s.Call(ctx, Request{Session: c.Session(), Tool: tool})
				if r.Kind != abi.Success {
					return fmt.Errorf("%s: %w", r.Error, err)
				}
				return err
			}
		}
		cfg := Config{Tools: []gotool.Tool{handler("first", next("second")), handler("second", next("echo")), handler("again", next("again"))}}
		cfg.Host.TotalCalls = 2
		s = open(t, cfg, "echo")

		var calls sync.WaitGroup
		for range 8 {
			calls.Go(func() { require.Equal(t, abi.Success, s.call(alice, "first", `{}`).Kind) })
		}
		calls.Wait()
		require.Contains(t, s.refused(alice, "again", `{}`), "at most 16 tools can call each other in turn")
	})
}

// A handler that ignores its context holds up nobody but its slot, and the operator is
// told.
func TestHandlerIgnoresItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		cfg := Config{Tools: []gotool.Tool{
			handler("deaf", func(context.Context, *gotool.Call) error { <-let; return nil }),
			handler("quick", idle),
		}}
		cfg.Host.TotalCalls = 1
		s := openFolder(t, cfg, nil)

		began := time.Now()
		r, err := s.Call(t.Context(), Request{Tool: "deaf", Limits: Limits{Timeout: time.Second}})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "time limit of 1s reached", r.Error)
		require.Equal(t, time.Second+gotool.LeaveTime, time.Since(began))
		require.Contains(t, s.logs.String(), `"msg":"the handler ignores its context: it still runs, and the call keeps its slot until it returns"`)
		require.Contains(t, s.logs.String(), `"tool":"deaf"`)

		r, _ = s.Call(t.Context(), Request{Tool: "quick", Limits: Limits{Timeout: time.Second}})
		require.Contains(t, r.Error, "at most 1 calls of the program's own tools run at a time")
		close(let)
		synctest.Wait()
		require.Equal(t, abi.Success, s.call("", "quick", `{}`).Kind)
		require.Contains(t, s.logs.String(), "the handler that ignored its context has returned")
	})
}

// A tool that leaks a handler with every call is refused before it takes all memory.
func TestHandlersThatNeverReturn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		s := openFolder(t, Config{Tools: []gotool.Tool{handler("deaf", func(context.Context, *gotool.Call) error { <-let; return nil })}}, nil)
		for range 16 {
			_, err := s.Call(t.Context(), Request{Tool: "deaf", Limits: Limits{Timeout: time.Second}})
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.Contains(t, s.refused(alice, "deaf", `{}`), "deaf is not available: 16 of its calls do not end")
		close(let)
		synctest.Wait()
		require.Equal(t, abi.Success, s.call(alice, "deaf", `{}`).Kind)
	})
}

// Close cancels what runs, and names the handlers that do not listen.
func TestCloseOfTheProgramsTools(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		s, err := Open(t.Context(), Config{Tools: []gotool.Tool{
			handler("deaf", func(context.Context, *gotool.Call) error { <-let; return nil }),
			handler("sleeper", func(ctx context.Context, _ *gotool.Call) error { <-ctx.Done(); return ctx.Err() }),
		}})
		require.NoError(t, err)
		for _, tool := range []string{"deaf", "sleeper"} {
			go func() { _, _ = s.Call(context.Background(), Request{Tool: tool}) }()
		}
		synctest.Wait()
		began := time.Now()
		require.EqualError(t, s.Close(done()), "handlers of tools ignore their context and still run: deaf")
		require.Equal(t, gotool.LeaveTime, time.Since(began))
		close(let)
	})
}

// What a handler does with a call that has ended reaches nobody.
func TestCallIsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var kept *gotool.Call
		s := openFolder(t, Config{Tools: []gotool.Tool{
			handler("keeps", func(_ context.Context, c *gotool.Call) error { kept = c; return nil }),
			handler("exits", func(context.Context, *gotool.Call) error { runtime.Goexit(); return nil }),
		}}, nil)
		require.Equal(t, abi.Success, s.call("", "keeps", `{}`).Kind)
		_, err := kept.Output().Write([]byte("late"))
		require.ErrorIs(t, err, gotool.ErrOver)
		require.ErrorIs(t, kept.Content(abi.Block{Type: "text", Text: "late"}), gotool.ErrOver)
		kept.Progress(1, 2, "late")

		r, err := s.Call(t.Context(), Request{Tool: "exits"})
		require.Equal(t, abi.Internal, r.Kind)
		require.ErrorContains(t, err, "runtime.Goexit was called")
	})
}

func TestRegister(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "plain")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		changed := s.ToolsChanged(ctx)

		require.NoError(t, s.Register(handler("mine", idle)))
		<-changed
		require.Equal(t, abi.Success, s.call(alice, "mine", `{}`).Kind)
		names := []string{}
		for _, d := range s.Definitions(alice) {
			names = append(names, d.Name)
		}
		require.Equal(t, []string{"mine", "plain", SpawnBackground, CheckBackground, StopBackground}, names)
		require.Equal(t, "mine", s.ProgramTools()[0].Name)
		require.True(t, s.ProgramTools()[0].Annotations.Destructive, "it does not say otherwise")

		for _, test := range []struct {
			tool gotool.Tool
			want string
		}{
			{handler("mine", idle), `tool "mine": it is registered already: unregister it first`},
			{handler("plain", idle), `tool "plain": the plugin plain (zoo/plain.wasm) has a tool "plain": rename one of the two`},
			{handler(SpawnBackground, idle), `tool "spawn_background": the name is reserved for the host: choose another one`},
			{handler("No", idle), `tool "No": /name: expected a name of [a-z][a-z0-9_]*, found "No"`},
			{gotool.Tool{Name: "empty", Description: "x"}, `tool "empty": it has no handler: make one with gotool.Handle`},
			{gotool.Tool{Name: "list", Description: "x", Handler: gotool.Handle(func(context.Context, *gotool.Call, []int) (int, error) { return 0, nil })},
				`tool "list": arguments: expected a struct, found []int`},
			{gotool.Tool{Name: "fuel", Description: "x", Limits: abi.Limits{Fuel: 1}, Handler: handler("fuel", idle).Handler}, `tool "fuel": limits of fuel and memory apply to plugins only`},
		} {
			require.EqualError(t, s.Register(test.tool), test.want)
		}

		require.NoError(t, s.Unregister("mine"))
		<-changed
		require.ErrorIs(t, s.Unregister("mine"), plugins.ErrNoTool)
		_, err := s.Call(t.Context(), Request{Tool: "mine"})
		require.ErrorIs(t, err, plugins.ErrNoTool)
	})
}

// A plugin cannot take a name of the program, before or after a reload.
func TestPluginWithANameOfTheProgram(t *testing.T) {
	file := func(name string) *fstest.MapFile {
		return &fstest.MapFile{Data: plugintest.Plugin{Manifest: plugintest.Manifest(name), Invoke: plugintest.Do().Echo()}.Wasm()}
	}
	files := fstest.MapFS{"mine.wasm": file("mine")}
	s := openFolder(t, Config{Tools: []gotool.Tool{handler("mine", idle)}}, files)
	require.Len(t, s.Problems(), 1)
	require.EqualError(t, s.Problems()[0].Err, `the program has a tool "mine" of its own: rename one of the two`)
	require.Len(t, s.Findings(), 1)

	require.NoError(t, s.Register(handler("later", idle)))
	files["later.wasm"] = file("later")
	_, err := s.Reload(t.Context())
	require.NoError(t, err)
	require.Len(t, s.Problems(), 2)

	require.NoError(t, s.Unregister("later"))
	_, err = s.Reload(t.Context())
	require.NoError(t, err)
	require.Len(t, s.Problems(), 1, "the name is free")
	require.JSONEq(t, `{"a":1}`, string(s.call(alice, "later", `{"a":1}`).Value))
}

// After a crash an idempotent tool runs again, if the next process registers the same
// one.
func TestProgramToolAfterACrash(t *testing.T) {
	again := func(change func(*gotool.Tool)) gotool.Tool {
		tool := gotool.Tool{Name: "keeper", Description: "For tests.", Hints: abi.Hints{SupportsBackground: true, Idempotent: true},
			Handler: gotool.Handle(func(ctx context.Context, c *gotool.Call, _ struct{}) (string, error) {
				if saved := c.LoadCheckpoint(); saved != nil {
					return fmt.Sprintf("%s, attempt %d", saved, c.Attempt()), nil
				}
				if err := c.SaveCheckpoint(ctx, []byte("half-way")); err != nil {
					return "", err
				}
				fmt.Fprintln(c.Output(), "saved")
				<-ctx.Done()
				return "", ctx.Err()
			})}
		change(&tool)
		return tool
	}
	for name, test := range map[string]struct {
		next []gotool.Tool
		want wire.Status
		why  string
	}{
		"the same tool":      {[]gotool.Tool{again(func(*gotool.Tool) {})}, wire.StatusSucceeded, ""},
		"another version":    {[]gotool.Tool{again(func(t *gotool.Tool) { t.Version = "2" })}, wire.StatusFailed, "was replaced in the meantime"},
		"another definition": {[]gotool.Tool{again(func(t *gotool.Tool) { t.Description = "Other." })}, wire.StatusFailed, "was replaced in the meantime"},
		"not idempotent":     {[]gotool.Tool{again(func(t *gotool.Tool) { t.Hints.Idempotent = false })}, wire.StatusFailed, "neither idempotent nor readonly"},
		"not registered":     {nil, wire.StatusFailed, "no such tool"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := Config{DataDir: dir, Tools: []gotool.Tool{again(func(*gotool.Tool) {})}, Runs: RunsConfig{Grace: time.Millisecond, EndSession: background.EndParked}}
			s, err := Open(t.Context(), cfg)
			require.NoError(t, err)
			run, err := s.Session(alice).Spawn(t.Context(), SpawnRequest{Tool: "keeper"})
			require.NoError(t, err)
			for run.OutputBytes == 0 {
				run, err = s.Session(alice).Run(t.Context(), run.TaskID)
				require.NoError(t, err)
				runtime.Gosched()
			}
			require.NoError(t, s.Close(done()))

			cfg.Tools = test.next
			s, err = Open(t.Context(), cfg)
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close(done())) }()
			checked, err := s.Session(alice).Check(t.Context(), CheckRequest{IDs: []string{run.TaskID}, Wait: MaxWait})
			require.NoError(t, err)
			run = checked.Runs[0]
			require.Equal(t, test.want, run.Status)
			if test.want == wire.StatusSucceeded {
				require.Equal(t, `"half-way, attempt 2"`, string(run.Result))
			} else {
				require.Contains(t, run.Error.Message, test.why)
			}
		})
	}
}

// The operator's log of a handler names the call, and models never see it.
func TestHandlerLog(t *testing.T) {
	s := openFolder(t, Config{Tools: []gotool.Tool{handler("logs", func(_ context.Context, c *gotool.Call) error {
		c.Log().Info("looked it up", "order", 7)
		return errors.New("gone")
	})}}, nil)
	require.Equal(t, "gone", s.refused(alice, "logs", `{}`))
	var record map[string]any
	require.NoError(t, json.Unmarshal([]byte(s.logs.String()), &record))
	require.Equal(t, []any{"looked it up", 7.0, "logs", alice}, []any{record["msg"], record["order"], record["tool"], record["session"]})
}

// What a caller that left did not learn is in the log.
func TestUnresolvedCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		wait := func(ctx context.Context, _ *gotool.Call) error { <-ctx.Done(); return ctx.Err() }
		finish := func(ctx context.Context, _ *gotool.Call) error { <-ctx.Done(); return nil }
		s := openFolder(t, Config{Tools: []gotool.Tool{handler("waits", wait), handler("finishes", finish)}}, nil)
		for tool, became := range map[string]string{"waits": "canceled", "finishes": "finished, not delivered"} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(errors.New("the client has ended the session")) })
			_, _ = s.Call(ctx, Request{Session: alice, Tool: tool})
			require.Regexp(t, fmt.Sprintf(`"msg":"the caller left before the call was answered","tool":%q,"session":"alice","call":"call_[^"]+","became":%q,"cause":"the client has ended the session"`, tool, became), s.logs.String())
		}
	})
}
