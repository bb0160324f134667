package server

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/shape"
)

// How a call ends is reported of a run in the kinds of background runs, with what
// an agent may know of it.
func TestRunErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		small := Limits{Fuel: 1_000_000, Memory: 1 << 20, Output: 1 << 20, Background: 5 * time.Second}
		s := open(t, Config{MaxLimits: small})
		for _, test := range []struct {
			tool string
			want map[string]any
			exit any
		}{
			{"fails", map[string]any{"kind": "tool_error", "message": "the file is not there"}, nil},
			{"exits", map[string]any{"kind": "tool_error", "message": "exited with code 3"}, 3.0},
			{"traps", map[string]any{"kind": "trap", "message": abi.InternalMessage}, nil},
			{"panics", map[string]any{"kind": "trap", "message": abi.InternalMessage}, nil},
			{"spin", map[string]any{"kind": "fuel_exhausted", "message": "out of fuel after 1000000 units"}, nil},
			{"hog", map[string]any{"kind": "memory_limit", "message": "out of memory: the plugin needs more than the 1048576 bytes allowed"}, nil},
			{"flood", map[string]any{"kind": "output_limit", "message": "output limit reached: the plugin wrote more than the 1048576 bytes allowed"}, nil},
			{"connect", map[string]any{"kind": "connection_required", "message": "connect acme first"}, nil},
			{"liar", map[string]any{"kind": "internal", "message": abi.InternalMessage}, nil},
			{"sleeper", map[string]any{"kind": "timeout", "message": "The run's deadline of 5s passed"}, nil},
		} {
			report := s.check(alice, s.spawn(alice, test.tool, "{}"), "")
			require.Equal(t, "failed", report["status"], test.tool)
			require.Equal(t, test.want, report["error"], test.tool)
			require.Equal(t, test.exit, report["exit_code"], test.tool)
			require.NotContains(t, report, "result")
		}
		require.Zero(t, s.agent(alice, CheckBackground, `{}`)["active"])
	})
}

// What a run keeps is what its call would have given: the value as it is, and
// the content next to it, also of a tool that could not do it. What a plugin left
// that broke is kept of neither.
func TestRunKeepsWhatCallGives(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo", "fails", "picture", "sketch", "mimic")
		for _, tool := range []string{"echo", "fails", "picture", "sketch", "mimic"} {
			want := s.call(alice, tool, `{}`)
			id := s.spawn(alice, tool, `{}`)
			run := s.settled(alice, id)
			require.Equal(t, string(want.Value), string(run.Result), tool)
			require.Equal(t, want.Content, shape.Blocks(run.Content), tool)
			require.Equal(t, want.Kind == abi.ToolError, run.Error != nil, tool)
			if run.Error != nil {
				require.Equal(t, engine.RunError{Kind: engine.KindToolError, Message: want.Error}, *run.Error)
			}
			if want.Content != nil {
				content, err := shape.JSON(want.Content)
				require.NoError(t, err)
				seen := string(s.call(alice, CheckBackground, `{"task_id":"`+id+`"}`).Value)
				require.Contains(t, seen, `"content":`+string(content))
				seen = string(s.call(alice, StopBackground, `{"task_id":"`+id+`"}`).Value)
				require.Contains(t, seen, `"content":`+string(content))
				require.Contains(t, s.artifact(alice, id, engine.ResultJSON), want.Content[0].Text)
			}
		}
	})
}

// Content that is too large to show is shown with its size, and where it is.
func TestLargeContent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "gallery")
		id := s.spawn(alice, "gallery", `{}`)
		report := s.check(alice, id, "")
		require.EqualValues(t, 1, report["result"])
		require.NotContains(t, report, "content")
		require.EqualValues(t, 9000+len(`[{"type":"text","text":""}]`), report["content_bytes"])
		require.Contains(t, s.artifact(alice, id, engine.ResultJSON), strings.Repeat("x", 9000))
	})
}

// A run is executed from its record, no matter which process stored it: what it names may be
// gone by then, or no longer granted.
func TestStoredRunRejected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo", "needy")
		for _, test := range []struct{ tool, want string }{
			{"ecko", `no such tool: "ecko", did you mean "echo"?`},
			{SpawnBackground, `no such tool: "spawn_background"`},
			{"needy", "denied: the plugin needy needs env HOME, which the operator has not granted"},
		} {
			run, err := s.runs.Spawn(t.Context(), alice, background.SpawnRequest{Tool: test.tool})
			require.NoError(t, err)
			require.Equal(t, map[string]any{"kind": "rejected", "message": test.want}, s.check(alice, run.ID, "")["error"])
		}
	})
}

// What went wrong inside is in the log, and in no answer of any tool.
func TestInternalErrorsStayInside(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{ParkAfter: time.Second}, "panics", "liar", "traps", "late")
		var answers strings.Builder
		say := func(r abi.Result) { answers.WriteString(string(r.Value) + r.Error + "\n") }
		for _, tool := range []string{"panics", "liar", "traps"} {
			r, err := s.Call(t.Context(), Request{Session: alice, Tool: tool})
			require.Error(t, err)
			require.Equal(t, abi.Internal, r.Kind)
			say(r)
			id := s.spawn(alice, tool, "{}")
			synctest.Wait()
			say(s.call(alice, CheckBackground, `{"task_id":"`+id+`"}`))
			say(s.call(alice, CheckBackground, `{"task_ids":["`+id+`","`+id+`"]}`))
			say(s.call(alice, CheckBackground, `{}`))
			say(s.call(alice, StopBackground, `{"task_id":"`+id+`"}`))
			answers.WriteString(s.artifact(alice, id, engine.ResultJSON) + s.artifact(alice, id, engine.OutputLog))
		}
		parked := s.park(alice, "late", "{}")
		time.Sleep(time.Minute)
		synctest.Wait()
		answers.WriteString(s.noticeText(alice))
		require.Contains(t, answers.String(), parked)
		say(s.call(alice, CheckBackground, `{"task_id":"`+parked+`"}`))
		for _, secret := range []string{"hunter2", "output_schema", "unreachable", "panicked", "crashed"} {
			require.NotContains(t, answers.String(), secret)
		}
		for _, cause := range []string{"it panicked: the key is hunter2", "does not fit its output_schema", "unreachable"} {
			require.Contains(t, s.logs.String(), cause)
		}
	})
}

// artifact is the text of a file of an ended run.
func (s service) artifact(session, id, name string) string {
	s.t.Helper()
	file, err := s.Session(session).Open(s.t.Context(), id, name)
	require.NoError(s.t, err)
	text, err := io.ReadAll(file)
	require.NoError(s.t, err)
	require.NoError(s.t, file.Close())
	return string(text)
}

// A plugin knows whose call it is: of a call, and of a run.
func TestPluginContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "context")
		told := func(value []byte) (c abi.Context) {
			require.NoError(t, json.Unmarshal(value, &c))
			return c
		}
		r, err := s.Call(t.Context(), Request{Session: alice, Tool: "context", Locale: "de-CH", Limits: Limits{Fuel: 1000, Timeout: time.Second}})
		require.NoError(t, err)
		c := told(r.Value)
		require.Regexp(t, `^call_[0-9a-f-]{36}$`, c.CallID)
		require.Equal(t, abi.Context{CallID: c.CallID, Session: alice, Attempt: 1, Locale: "de-CH", Fuel: 1000, TimeoutMS: 1000}, c)

		id := s.spawn(alice, "context", `{}`)
		run := s.settled(alice, id)
		require.Equal(t, abi.Context{CallID: id, Session: alice, Attempt: 1, Fuel: host.DefaultFuel, TimeoutMS: 300_000}, told(run.Result))
		require.Equal(t, engine.OriginSpawned, run.Origin)
	})
}

// A caller that goes away while it waits takes nothing with it.
func TestCheckCanceled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "sleeper")
		id := s.spawn(alice, "sleeper", "{}")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := s.Call(ctx, Request{Session: alice, Tool: CheckBackground, Args: []byte(`{"task_id":"` + id + `"}`)})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, abi.Result{Kind: abi.CanceledKind, Error: "the call was canceled"}, r)
		require.Equal(t, "running", s.check(alice, id, `,"wait_seconds":0`)["status"])
	})
}
