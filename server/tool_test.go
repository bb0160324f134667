package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/wire"
)

type noArguments struct{}

type keyed struct {
	Key string `json:"key,omitempty" secret:"true"`
}

type oneNumber struct {
	N *int `json:"n,omitempty"`
}

type colored struct {
	Color string `json:"color" enum:"red,green"`
}

// zooOfProgram has tools of the program that behave as the plugins of those names do.
func zooOfProgram() []gotool.Tool {
	background := abi.Hints{SupportsBackground: true}
	tools := []gotool.Tool{
		{Name: "plain", Handler: gotool.Handle(func(_ context.Context, _ *gotool.Call, _ noArguments) (noArguments, error) {
			return noArguments{}, nil
		})},
		{Name: "echo", Title: "Echo", Hints: abi.Hints{SupportsBackground: true, Readonly: true},
			Handler: gotool.Handle(func(_ context.Context, c *gotool.Call, in oneNumber) (oneNumber, error) {
				_, err := io.WriteString(c.Output(), "echoing\n")
				return in, err
			})},
		{Name: "fails", Hints: background, Handler: gotool.Handle(func(context.Context, *gotool.Call, noArguments) (gotool.None, error) {
			return gotool.None{}, errors.New("the file is not there")
		})},
		{Name: "panics", Hints: background, Handler: gotool.Handle(func(context.Context, *gotool.Call, noArguments) (gotool.None, error) {
			panic("the key is hunter2")
		})},
		{Name: "flood", Hints: background, Handler: gotool.Handle(func(_ context.Context, c *gotool.Call, _ noArguments) (gotool.None, error) {
			for {
				if _, err := c.Output().Write(make([]byte, 1<<16)); err != nil {
					return gotool.None{}, err
				}
			}
		})},
		{Name: "connect", Hints: background, Handler: gotool.Handle(func(context.Context, *gotool.Call, noArguments) (gotool.None, error) {
			return gotool.None{}, gotool.ConnectionRequired(abi.Connection{Provider: "acme"})
		})},
		{Name: "picture", Hints: background, Handler: gotool.Handle(func(_ context.Context, c *gotool.Call, _ noArguments) (json.RawMessage, error) {
			return json.RawMessage(`{"a":"<b>"}`), c.Content(abi.Block{Type: "text", Text: "hello"})
		})},
		{Name: "sketch", Hints: background, Handler: gotool.Handle(func(_ context.Context, c *gotool.Call, _ noArguments) (gotool.None, error) {
			return gotool.None{}, errors.Join(c.Content(abi.Block{Type: "text", Text: "see line 3"}), errors.New("it does not compile"))
		})},
		{Name: "liar", Hints: background, Handler: gotool.Handle(func(context.Context, *gotool.Call, noArguments) (colored, error) {
			return colored{"hunter2"}, nil
		})},
		{Name: "dangerous", Hints: background, Approval: abi.ApprovalRequired,
			Handler: gotool.Handle(func(_ context.Context, _ *gotool.Call, in noArguments) (noArguments, error) { return in, nil })},
		{Name: "confidant", Hints: background, Handler: gotool.Handle(func(_ context.Context, _ *gotool.Call, in keyed) (keyed, error) { return in, nil })},
		{Name: "sleeper", Hints: background, Handler: gotool.Handle(func(ctx context.Context, c *gotool.Call, _ noArguments) (gotool.None, error) {
			_, err := io.WriteString(c.Output(), "working\n")
			c.Progress(1, 2, "half way")
			<-ctx.Done()
			return gotool.None{}, errors.Join(err, errors.New("interrupted"))
		})},
		{Name: "stubborn", Hints: background, Handler: gotool.Handle(func(ctx context.Context, _ *gotool.Call, _ noArguments) (json.RawMessage, error) {
			<-ctx.Done()
			return json.RawMessage(`{"partial":true}`), nil
		})},
		{Name: "asker", Hints: background, Handler: gotool.Handle(func(ctx context.Context, c *gotool.Call, _ noArguments) (any, error) {
			answers, err := c.Ask(ctx, map[string]abi.Question{"name": {Message: "Who are you?", Schema: json.RawMessage(nameForm)}})
			return abi.Answers{Answers: answers}, err
		})},
		{Name: "keeper", Hints: abi.Hints{SupportsBackground: true, Idempotent: true},
			Handler: gotool.Handle(func(ctx context.Context, c *gotool.Call, _ noArguments) (string, error) {
				if saved := c.LoadCheckpoint(); saved != nil {
					return string(saved), nil
				}
				if err := c.SaveCheckpoint(ctx, []byte("half-way")); err != nil {
					return "", err
				}
				_, err := io.WriteString(c.Output(), "saved\n")
				<-ctx.Done()
				return "", errors.Join(err, ctx.Err())
			})},
	}
	for i := range tools {
		tools[i].Description = "For tests."
	}
	return tools
}

// TestToolsOfAnySource is what holds for every tool that can be called, wherever it comes from.
func TestToolsOfAnySource(t *testing.T) {
	for from, open := range map[string]func(t *testing.T, cfg Config) service{
		"plugin": func(t *testing.T, cfg Config) service { return open(t, cfg) },
		"program": func(t *testing.T, cfg Config) service {
			cfg.Tools = zooOfProgram()
			return openFolder(t, cfg, nil)
		},
	} {
		for name, test := range anySourceTests {
			t.Run(from+"/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					cfg := Config{}
					if test.config != nil {
						test.config(&cfg)
					}
					test.run(t, open(t, cfg))
				})
			})
		}
	}
}

var anySourceTests = map[string]struct {
	config func(*Config)
	run    func(t *testing.T, s service)
}{
	"success": {run: func(t *testing.T, s service) {
		var output bytes.Buffer
		r, err := s.Call(t.Context(), Request{Session: alice, Tool: "echo", Args: json.RawMessage(`{"n":1}`), Stdout: &output})
		require.NoError(t, err)
		require.JSONEq(t, `{"n":1}`, string(r.Value))
		require.Equal(t, "echoing\n", output.String())
		require.Positive(t, r.Usage.OutputBytes)
	}},
	"definition": {run: func(t *testing.T, s service) {
		for _, d := range s.Definitions(alice) {
			if d.Name == "echo" {
				require.Equal(t, "Echo", d.Title)
				require.True(t, d.SupportsBackground && d.MayPark && d.Annotations.ReadOnly)
				require.Equal(t, d.Plugin == "", d.Unsandboxed)
				require.Contains(t, string(d.InputSchema), `"integer"`)
				return
			}
		}
		t.Fatal("it is not there")
	}},
	"arguments": {run: func(t *testing.T, s service) {
		require.Contains(t, s.refused(alice, "echo", `{"n":"x"}`), "the arguments of echo do not fit its schema: /n: ")
	}},
	"tool error": {run: func(t *testing.T, s service) {
		require.Equal(t, "the file is not there", s.refused(alice, "fails", `{}`))
	}},
	"crash": {run: func(t *testing.T, s service) {
		r, err := s.Call(t.Context(), Request{Tool: "panics"})
		require.Equal(t, abi.InternalMessage, r.Error)
		require.Equal(t, abi.Internal, r.Kind)
		require.ErrorIs(t, err, host.ErrTrap)
		require.Equal(t, wire.CodeTrap, ReasonOf(err).Code)
		require.Contains(t, s.logs.String(), "hunter2", "the operator sees why")

		report := s.check(alice, s.spawn(alice, "panics", `{}`), longest)
		require.Equal(t, "trap", report["error"].(map[string]any)["kind"])
		require.NotContains(t, mustJSON(t, report), "hunter2")
	}},
	"output limit": {run: func(t *testing.T, s service) {
		r, err := s.Call(t.Context(), Request{Tool: "flood", Limits: Limits{Output: 1 << 20}})
		require.ErrorIs(t, err, host.ErrOutput)
		require.Equal(t, abi.LimitOutput, r.Limit)
		require.LessOrEqual(t, r.Usage.OutputBytes, int64(1<<20))
	}},
	"connection": {run: func(t *testing.T, s service) {
		r := s.call(alice, "connect", `{}`)
		require.Equal(t, abi.ConnectionRequired, r.Kind)
		require.Equal(t, "acme", r.Connection.Provider)
	}},
	"content": {run: func(t *testing.T, s service) {
		r := s.call(alice, "picture", `{}`)
		require.Equal(t, `{"a":"<b>"}`, string(r.Value))
		require.Equal(t, []abi.Block{{Type: "text", Text: "hello"}}, r.Content)
		r = s.call(alice, "sketch", `{}`)
		require.Equal(t, abi.ToolError, r.Kind)
		require.Equal(t, []abi.Block{{Type: "text", Text: "see line 3"}}, r.Content)
	}},
	"result that does not fit": {run: func(t *testing.T, s service) {
		r, err := s.Call(t.Context(), Request{Tool: "liar"})
		require.ErrorIs(t, err, host.ErrABI)
		require.Equal(t, abi.InternalMessage, r.Error)
	}},
	"time limit": {run: func(t *testing.T, s service) {
		began := time.Now()
		r, err := s.Call(t.Context(), Request{Tool: "sleeper", Limits: Limits{Timeout: 5 * time.Second}})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "time limit of 5s reached", r.Error)
		require.Equal(t, abi.LimitTime, r.Limit)
		require.Equal(t, 5*time.Second, time.Since(began))
	}},
	"caller leaves": {run: func(t *testing.T, s service) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := s.Call(ctx, Request{Session: alice, Tool: "sleeper"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotEqual(t, abi.Success, r.Kind)
	}},
	"approval refused": {run: func(t *testing.T, s service) {
		r, err := s.Call(t.Context(), Request{Session: alice, Tool: "dangerous"})
		require.ErrorIs(t, err, ErrApproval)
		require.Equal(t, abi.ToolError, r.Kind)
	}},
	"approval given": {func(cfg *Config) { cfg.Approve = func(context.Context, Approval) error { return nil } }, func(t *testing.T, s service) {
		require.Equal(t, abi.Success, s.call(alice, "dangerous", `{}`).Kind)
	}},
	"secret": {run: func(t *testing.T, s service) {
		id := s.spawn(alice, "confidant", `{"key":"hunter2"}`)
		require.Equal(t, map[string]any{"key": "hunter2"}, s.check(alice, id, longest)["result"])
		run, err := s.Session(alice).WholeRun(t.Context(), id)
		require.NoError(t, err)
		require.NotContains(t, run.Args, "hunter2")
		require.True(t, run.ArgsIncomplete)
	}},
	"no background": {run: func(t *testing.T, s service) {
		require.Contains(t, s.refused(alice, SpawnBackground, `{"tool":"plain","args":{}}`), "does not support background runs")
	}},
	"run": {run: func(t *testing.T, s service) {
		id := s.spawn(alice, "sleeper", `{}`)
		time.Sleep(time.Second)
		report := s.check(alice, id, `,"wait_seconds":0`)
		require.Equal(t, "running", report["status"])
		require.Equal(t, "working\n", report["output"].(map[string]any)["text"])
		require.Equal(t, "half way", report["progress"].(map[string]any)["message"])

		began := time.Now()
		require.Equal(t, true, s.stop(alice, id, "")["stopped"])
		require.Less(t, time.Since(began), time.Second, "it listens")
		require.Equal(t, "canceled", s.check(alice, id, "")["status"])
		require.Len(t, s.notices(alice), 0, "the stop has shown the end")
	}},
	"stop keeps a result": {run: func(t *testing.T, s service) {
		id := s.spawn(alice, "stubborn", `{}`)
		time.Sleep(time.Second)
		require.Equal(t, map[string]any{"partial": true}, s.stop(alice, id, "")["result"])
		require.Equal(t, "succeeded", s.check(alice, id, "")["status"])
	}},
	"deadline of a run": {run: func(t *testing.T, s service) {
		id := s.agent(alice, SpawnBackground, `{"tool":"sleeper","args":{},"timeout_seconds":5}`)["task_id"].(string)
		time.Sleep(10 * time.Second)
		report := s.check(alice, id, "")
		require.Equal(t, "timeout", report["error"].(map[string]any)["kind"])
		require.Len(t, s.notices(alice), 0)
	}},
	"parked": {run: func(t *testing.T, s service) {
		var output bytes.Buffer
		r, err := s.Call(t.Context(), Request{Session: alice, Tool: "sleeper", ParkAfter: time.Second, Stdout: &output})
		require.NoError(t, err)
		var parked struct{ Type, TaskID string }
		require.NoError(t, json.Unmarshal(bytes.ReplaceAll(r.Value, []byte("task_id"), []byte("TaskID")), &parked))
		require.Equal(t, "background", parked.Type)
		require.Equal(t, "working\n", output.String())
		require.Equal(t, true, s.stop(alice, parked.TaskID, "")["stopped"])
	}},
	"schedule": {run: func(t *testing.T, s service) {
		s.agent(alice, SpawnBackground, `{"tool":"echo","args":{"n":3},"schedule":{"cron_expression":"0 * * * *"}}`)
		time.Sleep(time.Hour + time.Second)
		runs, err := s.Session(alice).Runs(t.Context(), RunQuery{})
		require.NoError(t, err)
		require.Len(t, runs, 1)
		require.Equal(t, wire.StatusSucceeded, runs[0].Status)
		require.Len(t, s.notices(alice), 1)
	}},
	"question": {run: func(t *testing.T, s service) {
		asked := func(ctx context.Context, q abi.Questions) (abi.Answers, error) {
			require.Equal(t, "Who are you?", q.Questions["name"].Message)
			return abi.Answers{Answers: map[string]abi.Answer{"name": {Action: abi.AnswerAccept, Content: json.RawMessage(`{"name":"Ana"}`)}}}, nil
		}
		r, err := s.Call(t.Context(), Request{Tool: "asker", Ask: asked})
		require.NoError(t, err)
		require.JSONEq(t, `{"answers":{"name":{"action":"accept","content":{"name":"Ana"}}}}`, string(r.Value))
	}},
	"slots": {func(cfg *Config) { cfg.Host.TotalCalls = 1 }, func(t *testing.T, s service) {
		ended := make(chan struct{})
		go func() {
			_, _ = s.Call(t.Context(), Request{Tool: "sleeper", Limits: Limits{Timeout: time.Minute}})
			close(ended)
		}()
		time.Sleep(time.Second)
		r, err := s.Call(t.Context(), Request{Tool: "echo", Limits: Limits{Timeout: time.Second}})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Contains(t, r.Error, "while the call waited: at most 1 calls")
		<-ended
		require.Equal(t, abi.Success, s.call("", "echo", `{}`).Kind, "the slot is free again")
	}},
	"parking returns the slot": {func(cfg *Config) { cfg.Host.TotalCalls = 1 }, func(t *testing.T, s service) {
		_, err := s.Call(t.Context(), Request{Session: alice, Tool: "sleeper", ParkAfter: time.Second})
		require.NoError(t, err)
		require.Equal(t, abi.Success, s.call("", "echo", `{}`).Kind)
	}},
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return string(data)
}
