package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// mcpGuest is a plugin of hyper-mcp, v1 or v2.
func mcpGuest(list, call string, calls code) extismGuest {
	tools := `{"tools":[{"name":"do-it","description":"Does it.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"destructiveHint":true}}]}`
	return extismGuest{exports: map[string]code{
		list: seq(output(text(tools)), i32(0)),
		call: seq(calls, i32(0)),
	}}
}

func v1(calls code) extismGuest { return mcpGuest("describe", "call", calls) }
func v2(calls code) extismGuest { return mcpGuest("list_tools", "call_tool", calls) }

var doIt = host.Call{ID: "call_1", Args: []byte(`{"a":"<"}`), Traits: host.Traits{Plugin: "guest", MCPTool: "do-it"}}

func TestMCPTools(t *testing.T) {
	says := kernel("error_set", kernel("input_offset")) // the input is the error
	for name, c := range map[string]struct {
		guest extismGuest
		mcp   host.MCP
		input string
	}{
		"v1": {v1(says), host.MCPv1, `{"params":{"arguments":{"a":"<"},"name":"do-it"}}`},
		"v2": {v2(says), host.MCPv2, `{"context":{"id":"call_1","_meta":{}},"request":{"arguments":{"a":"<"},"name":"do-it"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			info, err := h.Inspect(c.guest.wasm())
			require.NoError(t, err)
			require.Equal(t, c.mcp, info.MCP)
			require.True(t, info.Describe)

			list, err := h.Describe(t.Context(), c.guest.wasm())
			require.NoError(t, err)
			document, err := host.MCPManifest("9-Lives", list)
			require.NoError(t, err)
			m, err := abi.DecodeManifest(document)
			require.NoError(t, err)
			require.NoError(t, info.CheckTools(m))
			require.Equal(t, "p9_lives", m.Name)
			require.Equal(t, "do_it", m.Tools[0].Name)
			require.Equal(t, "do-it", m.Tools[0].MCPTool)
			require.Equal(t, abi.Hints{Readonly: true}, m.Tools[0].Hints)

			o := callExtism(t, c.guest, doIt)
			require.NoError(t, o.err)
			require.Equal(t, abi.ToolError, o.Kind)
			require.JSONEq(t, c.input, o.Error)
		})
	}
}

func TestMCPResults(t *testing.T) {
	for name, c := range map[string]struct {
		result  string
		value   string
		content []abi.Block
	}{
		"a text":          {`{"content":[{"type":"text","text":"a","annotations":{"audience":[],"priority":1},"mimeType":"text/plain"}]}`, `"a"`, nil},
		"JSON":            {`{"content":[{"type":"text","text":"{\"a\": 1}"}],"isError":false}`, `{"a":1}`, nil},
		"texts":           {`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, "", []abi.Block{{Type: "text", Text: "a"}, {Type: "text", Text: "b"}}},
		"an image":        {`{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"}]}`, "", []abi.Block{{Type: "image", Data: []byte{0, 0, 0}, MIMEType: "image/png"}}},
		"a resource":      {`{"content":[{"type":"resource","resource":{"uri":"urn:a","mimeType":"text/plain","text":"a"}}]}`, "", []abi.Block{{Type: "resource", URI: "urn:a", MIMEType: "text/plain", Text: "a"}}},
		"nothing":         {`{"content":[]}`, "", nil},
		"structured":      {`{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a": 1}}`, `{"a":1}`, nil},
		"structured also": {`{"content":[{"type":"text","text":"one"}],"structuredContent":{"a":1}}`, `{"a":1}`, []abi.Block{{Type: "text", Text: "one"}}},
		"null":            {`{"content":null,"structuredContent":null}`, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := callExtism(t, v1(output(text(c.result))), doIt)
			require.NoError(t, o.err)
			require.Equal(t, abi.Success, o.Kind, o.Error)
			require.Equal(t, c.value, string(o.Value))
			require.Equal(t, c.content, o.Content)
		})
	}

	for _, result := range []string{`{"content":[{"type":"text","text":"no"}],"isError":true}`, `{"content":[{"type":"text","text":"n"},{"type":"text","text":"o"}],"isError":true,"structuredContent":{}}`} {
		o := callExtism(t, v2(output(text(result))), doIt)
		require.NoError(t, o.err)
		require.Equal(t, abi.ToolError, o.Kind)
		require.Contains(t, []string{"no", "n\no"}, o.Error)
	}
}

// TestMCPHostile: what does not fit MCP is the plugin's fault.
func TestMCPHostile(t *testing.T) {
	for name, result := range map[string]string{
		"nothing":         ``,
		"a text":          `hello`,
		"an object":       `{"content":{}}`,
		"another type":    `{"content":[{"type":"video"},{}]}`,
		"an image of SVG": `{"content":[{"type":"image","data":"AAAA","mimeType":"image/svg+xml"}]}`,
		"not in base64":   `{"content":[{"type":"image","data":"?","mimeType":"image/png"}]}`,
		"many":            `{"content":[` + string(bytes.Repeat([]byte("{},"), 256)) + `{}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			o := callExtism(t, v1(output(text(result))), doIt)
			require.ErrorIs(t, o.err, host.ErrABI)
			require.ErrorContains(t, o.err, "the result of the tool")
		})
	}
	for name, list := range map[string]string{
		"a text": `x`, "tools": `{"tools":7}`, "many": `{"tools":[` + string(bytes.Repeat([]byte("{},"), abi.MaxTools)) + `{}]}`,
	} {
		_, err := host.MCPManifest("p", []byte(list))
		require.ErrorIs(t, err, host.ErrABI, name)
	}
}

func TestMCPNotifies(t *testing.T) {
	var log bytes.Buffer
	h := newHost(t, slog.New(slog.NewTextHandler(&log, nil)))
	user := func(name, params, results string, args ...code) extismGuest { // in place of function 23
		body := seq(seq(args...), call(23))
		if results != "" {
			body = output(body)
		}
		g := v1(body)
		g.change = func(m *wasmbin.Module) {
			m.Imports[23] = wasmbin.Import{Module: "extism:host/user", Name: name, Type: uint32(len(m.Types))}
			m.Types = append(m.Types, wasmbin.FuncType{Params: sig(params, false).Params, Results: sig(results, false).Params})
		}
		return g
	}
	var asked host.Services
	run := func(g extismGuest) outcome {
		req := doIt
		req.Services, req.Policy.Ask = asked, asked.Ask != nil
		req.MCPTool = "" // which takes the output as it is
		req.Function = "call"
		return do(t.Context(), h, compile(t, h, g.wasm()), req)
	}
	require.Equal(t, "log_warn", extismSigs[24].name, "22 and 23 are not used otherwise")

	o := run(user("notify_progress", "l", "", text(`{"progress":1,"total":2,"message":"half","progressToken":"x"}`)))
	require.NoError(t, o.err)
	require.Equal(t, host.Progress{Done: 1, Total: 2, Message: "half"}, o.progress[len(o.progress)-1])
	o = run(user("notify_progress", "l", "", i64(77)))
	require.NoError(t, o.err)
	require.Empty(t, o.progress)

	require.NoError(t, run(user("notify_logging_message", "l", "", text(`{"level":"warning","data":{"a":1}}`))).err)
	require.Contains(t, log.String(), `level=WARN msg="guest | {\"a\":1}"`)
	require.NoError(t, run(user("notify_tool_list_changed", "", "")).err)
	require.Equal(t, json.RawMessage(`{"roots":[]}`), run(user("list_roots", "", "l")).Value)

	o = run(user("create_message", "l", "l", text("{}")))
	require.NoError(t, o.err)
	require.Equal(t, abi.ToolError, o.Kind)
	require.Contains(t, o.Error, "this host has no create_message")

	question := user("create_elicitation", "l", "l", text(`{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}},"timeout":5}`))
	o = run(question)
	require.Equal(t, abi.ToolError, o.Kind)
	require.Contains(t, o.Error, "ask is not granted to this plugin")
	asked.Ask = func(_ context.Context, q abi.Questions) (abi.Answers, error) {
		require.Len(t, q.Questions, 1)
		require.Equal(t, "Who?", q.Questions["question"].Message)
		require.JSONEq(t, `{"type":"object","properties":{"name":{"type":"string"}}}`, string(q.Questions["question"].Schema))
		return abi.Answers{Answers: map[string]abi.Answer{"question": {Action: abi.AnswerAccept, Content: json.RawMessage(`{"name":"Ana"}`)}}}, nil
	}
	o = run(question)
	require.NoError(t, o.err)
	require.Equal(t, abi.Success, o.Kind, o.Error)
	require.Equal(t, json.RawMessage(`{"action":"accept","content":{"name":"Ana"}}`), o.Value)
	for request, problem := range map[string]string{`[]`: "create_elicitation: ", `{"message":"Who?"}`: "not questions for the user", `{"requestedSchema":{"type":"object"}}`: "not questions for the user"} {
		o = run(user("create_elicitation", "l", "l", text(request)))
		require.Equal(t, abi.ToolError, o.Kind)
		require.Contains(t, o.Error, problem)
	}
}

func FuzzMCP(f *testing.F) {
	f.Add("name", []byte(`{"tools":[{"name":"a","inputSchema":{},"annotations":{"readOnlyHint":true}}]}`))
	f.Add("", []byte(`{"tools":[{"name":"","description":" ","inputSchema":null}]}`))
	f.Fuzz(func(t *testing.T, name string, list []byte) {
		document, err := host.MCPManifest(name, list)
		if err != nil {
			require.ErrorIs(t, err, host.ErrABI)
			return
		}
		m, err := abi.DecodeManifest(document)
		if err == nil {
			require.NotEmpty(t, m.Tools)
		}
	})
}
