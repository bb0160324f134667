package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/reason"
)

func TestCall(t *testing.T) {
	s := open(t, Config{}, "echo", "fails", "connect", "picture")
	r := s.call(alice, "echo", `{"n":1}`)
	require.True(t, r.IsSuccess())
	require.JSONEq(t, `{"n":1}`, string(r.Value))
	require.Positive(t, r.Usage.Fuel)
	require.EqualValues(t, len("echoing\n")+len(`{"n":1}`), r.Usage.OutputBytes)
	require.JSONEq(t, `{}`, string(s.call("", "echo", "").Value), "no arguments are {}, no session is one too")

	r = s.call(alice, "fails", "")
	require.Equal(t, abi.ToolError, r.Kind)
	require.Equal(t, "the file is not there", r.Error)

	r = s.call(alice, "connect", "")
	require.Equal(t, abi.ConnectionRequired, r.Kind)
	require.Equal(t, &abi.Connection{Provider: "acme"}, r.Connection)
	require.False(t, r.IsError() || r.IsSuccess())

	r = s.call(alice, "picture", "")
	require.Equal(t, []abi.Block{{Type: "text", Text: "hello"}}, r.Content)
}

// Output is apart from the result, and no key of a result means anything to the
// host: in a call, in a run and in the files of a run.
func TestNoKeyIsSpecial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo")
		for _, value := range []string{`{"_raw_output":"x"}`, `{"_raw_output_scalar":"x"}`, `{"_raw_output":"x","_raw_output_scalar":7,"n":1}`, `{"error":"x","status":"failed","result":{}}`} {
			require.Equal(t, value, string(s.call(alice, "echo", value).Value))
			id := s.spawn(alice, "echo", value)
			report := s.check(alice, id, `,"max_chars":100`)
			require.Equal(t, "succeeded", report["status"])
			var want map[string]any
			require.NoError(t, json.Unmarshal([]byte(value), &want))
			require.Equal(t, want, report["result"])
			require.Equal(t, "echoing\n", report["output"].(map[string]any)["text"])
			require.Equal(t, "echoing\n", s.artifact(alice, id, engine.OutputLog))
			var envelope engine.Envelope
			require.NoError(t, json.Unmarshal([]byte(s.artifact(alice, id, engine.ResultJSON)), &envelope))
			require.JSONEq(t, value, string(envelope.Result))
		}
	})
}

// What nothing here knows, such as a record that cannot be stored, is reported to the
// agent in one sentence, and returned to the caller in full.
func TestUnknownErrorsAreInternal(t *testing.T) {
	full := fmt.Errorf("spawn: %w", errors.New("/srv/data: no space left on device"))
	r, err := reason.Explain(full)
	require.Equal(t, full, err)
	require.Equal(t, abi.Result{Kind: abi.Internal, Error: abi.InternalMessage}, r)
}

func TestCallFollowsOutput(t *testing.T) {
	s := open(t, Config{}, "echo", "sleeper")
	var stdout bytes.Buffer
	_, err := s.Call(t.Context(), Request{Tool: "echo", Stdout: &stdout})
	require.NoError(t, err)
	require.Equal(t, "echoing\n", stdout.String())

	// The call is ended by what it says itself.
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("heard enough")
	var heard []host.Progress
	r, err := s.Call(ctx, Request{Tool: "sleeper", Progress: func(p host.Progress) {
		heard = append(heard, p)
		cancel(enough)
	}})
	require.ErrorIs(t, err, enough)
	require.Equal(t, abi.CanceledKind, r.Kind)
	require.Equal(t, []host.Progress{{Done: 1, Total: 2, Message: "half way"}}, heard)
}

func TestCallUnknownTool(t *testing.T) {
	s := open(t, Config{}, "echo")
	r, err := s.Call(t.Context(), Request{Tool: "ecko"})
	require.ErrorIs(t, err, plugins.ErrNoTool)
	require.Equal(t, abi.Result{Kind: abi.ToolError, Error: `no such tool: "ecko", did you mean "echo"?`}, r)
}

// The tools of the program and those of agents are suggested too.
func TestCallMisspeltTool(t *testing.T) {
	s := open(t, Config{Tools: zooOfProgram()})
	for name, want := range map[string]string{"plian": "plain", "ecko": "echo", "checkbackground": "check_background"} {
		_, err := s.Call(t.Context(), Request{Tool: name})
		require.ErrorIs(t, err, plugins.ErrNoTool)
		require.ErrorContains(t, err, fmt.Sprintf("did you mean %q?", want))
	}
}

// What does not fit a schema is reported field by field, for a model to correct, and
// never at length.
func TestCallBadArgs(t *testing.T) {
	m := plugintest.Manifest("typed")
	m.Tools[0].InputSchema = json.RawMessage(`{"type":"object","additionalProperties":false,"required":["path"],"properties":{
		"path":{"type":"string","pattern":"^/"},"lines":{"type":"array","items":{"type":"integer","minimum":1}}}}`)
	s := openFolder(t, Config{}, fstest.MapFS{"t.wasm": {Data: plugintest.Plugin{Manifest: m}.Wasm()}})
	const prefix = "the arguments of typed do not fit its schema: "
	for _, test := range []struct{ name, args, want string }{
		{"missing", `{}`, "missing: path"},
		{"wrong type", `{"path":7}`, "/path: expected string, found number"},
		{"each of several", `{"lines":[1,0,"x"],"paht":"/a"}`, "/lines/1: expected at least 1, found 0; /lines/2: expected integer, found string; missing: path; unknown field: paht"},
		{"pattern", `{"path":"a"}`, "/path: 'a' does not match pattern '^/'"},
		{"no object", `[1]`, "expected an object, found an array"},
		{"no JSON", `{"path":`, "expected JSON: unexpected EOF (byte 8)"},
		{"two documents", `{"path":"/a"} {}`, "expected JSON: invalid character '{' after top-level value (byte 14)"},
		{"a number nobody can hold", `{"path":1e999999999}`, "the number 1e999999999… is out of range"},
	} {
		t.Run(test.name, func(t *testing.T) { require.Equal(t, prefix+test.want, s.refused(alice, "typed", test.args)) })
	}
	t.Run("what is quoted is cut", func(t *testing.T) {
		long := strings.Repeat("ü", 100_000)
		text := s.refused(alice, "typed", `{"path":"`+long+`","`+long+`":1}`)
		require.Less(t, len(text), 1000)
		require.True(t, strings.HasPrefix(text, prefix))
		require.Contains(t, text, "; ", "one long problem does not hide the other")
	})
	t.Run("null is no object", func(t *testing.T) {
		require.Equal(t, prefix+"expected an object, found null", s.refused(alice, "typed", `null`))
	})
}

func TestCallTooLargeArgs(t *testing.T) {
	s := open(t, Config{}, "echo")
	args := `{"text":"` + strings.Repeat("x", MaxArgs) + `"}`
	for _, tool := range []string{"echo", CheckBackground} {
		require.Equal(t, "the arguments have 8388619 bytes, and at most 8388608 are allowed", s.refused(alice, tool, args))
	}
}

// A result that breaks the tool's own promise is the plugin's fault: the
// operator reads about it, the agent does not.
func TestCallBadResult(t *testing.T) {
	s := open(t, Config{}, "liar")
	r, err := s.Call(t.Context(), Request{Session: alice, Tool: "liar"})
	require.ErrorIs(t, err, host.ErrABI)
	require.ErrorContains(t, err, "the result of liar does not fit its output_schema: expected object, found string")
	require.Equal(t, abi.Internal, r.Kind)
	require.Equal(t, abi.InternalMessage, r.Error)
	require.Nil(t, r.Value)
	require.Positive(t, r.Usage.Fuel)
	require.Contains(t, s.logs.String(), "does not fit its output_schema")
}

func TestCallLimits(t *testing.T) {
	s := open(t, Config{})
	for _, test := range []struct {
		tool   string
		limits Limits
		limit  abi.Limit
		err    error
		text   string
	}{
		{"spin", Limits{Fuel: 1_000_000}, abi.LimitFuel, host.ErrFuel, "out of fuel after 1000000 units"},
		{"spin", Limits{Timeout: time.Millisecond}, abi.LimitTime, context.DeadlineExceeded, "time limit of 1ms reached"},
		{"hog", Limits{Memory: 1 << 20}, abi.LimitMemory, host.ErrMemory, "out of memory: the plugin needs more than the 1048576 bytes allowed"},
		{"flood", Limits{Output: 1 << 20}, abi.LimitOutput, host.ErrOutput, "output limit reached: the plugin wrote more than the 1048576 bytes allowed"},
	} {
		t.Run(string(test.limit), func(t *testing.T) {
			r, err := s.Call(t.Context(), Request{Tool: test.tool, Limits: test.limits})
			require.ErrorIs(t, err, test.err)
			require.Equal(t, abi.LimitReached, r.Kind)
			require.Equal(t, test.limit, r.Limit)
			require.Equal(t, test.text, r.Error)
		})
	}
	r, err := s.Call(t.Context(), Request{Tool: "traps"})
	require.ErrorIs(t, err, host.ErrTrap)
	require.Equal(t, abi.InternalMessage, r.Error)
}

func TestApproval(t *testing.T) {
	refused := errors.New("Ada said no")
	for _, test := range []struct {
		name    string
		approve func(context.Context, Approval) error
		want    string
	}{
		{"nobody to ask", nil, "denied: the tool needs a person's approval, and nobody can be asked here"},
		{"refused", func(context.Context, Approval) error { return refused }, "denied: the tool needs a person's approval: Ada said no"},
		{"allowed", func(context.Context, Approval) error { return nil }, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var asked []Approval
			cfg := Config{}
			if test.approve != nil {
				cfg.Approve = func(ctx context.Context, a Approval) error {
					asked = append(asked, a)
					return test.approve(ctx, a)
				}
			}
			s := open(t, cfg, "dangerous", "echo")
			r, err := s.Call(t.Context(), Request{Session: alice, Tool: "dangerous", Args: []byte(`{"n":1}`)})
			require.Equal(t, test.want, r.Error)
			if test.want == "" {
				require.NoError(t, err)
				require.JSONEq(t, `{"n":1}`, string(r.Value))
			} else {
				require.ErrorIs(t, err, ErrApproval)
				require.ErrorIs(t, err, host.ErrDenied)
				require.Equal(t, abi.ToolError, r.Kind)
			}
			if test.approve != nil {
				require.Equal(t, []Approval{{Session: alice, Tool: "dangerous", Args: []byte(`{"n":1}`)}}, asked)
			}
			s.call(alice, "echo", "{}")
			require.LessOrEqual(t, len(asked), 1, "only what asks for approval is asked about")
		})
	}
}

// Nobody is asked about a call that would be refused anyway.
func TestApprovalComesLast(t *testing.T) {
	s := open(t, Config{Approve: func(context.Context, Approval) error { panic("asked") }}, "dangerous", "needy", "echo")
	require.Contains(t, s.refused(alice, "needy", `{"n":"x"}`), "/n: expected integer, found string")
	require.Equal(t, "denied: the plugin needy needs env HOME, which the operator has not granted", s.refused(alice, "needy", `{"n":1}`))
	require.Contains(t, s.refused(alice, "dangerous", `[]`), "expected an object, found an array")
}

// What is denied names the plugin and the tool for the operator.
func TestDeniedNamesTheTool(t *testing.T) {
	s := open(t, Config{}, "needy")
	_, err := s.Call(t.Context(), Request{Session: alice, Tool: "needy"})
	require.ErrorIs(t, err, host.ErrDenied)
	var place *host.CallError
	require.ErrorAs(t, err, &place)
	require.Equal(t, "needy", place.Plugin)
	require.EqualError(t, err, "needy: denied: the plugin needy needs env HOME, which the operator has not granted")
}

// A dry run of a tool that is not readonly does nothing, and says so.
func TestDryRun(t *testing.T) {
	s := open(t, Config{Approve: func(context.Context, Approval) error { panic("asked") }}, "echo", "dangerous")
	r, err := s.Call(t.Context(), Request{Tool: "dangerous", DryRun: true})
	require.NoError(t, err)
	require.True(t, IsDryRun(r))
	require.JSONEq(t, `{"type":"dry_run","tool":"dangerous","args":{},"approval":"required",
		"limits":{"fuel":100000000000,"memory_bytes":67108864,"output_bytes":8388608,"timeout_seconds":120},
		"message":"Dry run: dangerous was not called, because it is not readonly. Its arguments fit. A person would be asked to approve it first: its manifest requires it."}`, string(r.Value))
	r, err = s.Call(t.Context(), Request{Tool: "echo", Args: []byte(`{"n":2}`), DryRun: true})
	require.NoError(t, err)
	require.JSONEq(t, `{"n":2}`, string(r.Value), "a readonly tool is called")
}

func TestLookup(t *testing.T) {
	s := open(t, Config{}, "echo", "needy")
	tool, err := s.Lookup("needy")
	require.NoError(t, err)
	require.Equal(t, []string{"env HOME"}, tool.Plugin.Missing)
	require.Len(t, s.Tools(), 2)
	require.Len(t, s.Plugins(), 2)
	require.Empty(t, s.Problems())
	_, err = s.Lookup(SpawnBackground)
	require.ErrorIs(t, err, plugins.ErrNoTool, "it is no plugin's")
}
