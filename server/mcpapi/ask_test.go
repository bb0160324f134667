package mcpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// askers configures a service whose plugins may ask.
func askers() server.Config {
	cfg := serviceConfig("test", "confirm")
	cfg.Grants = map[string]plugins.Grant{"test": {Clock: true, Ask: true}, "confirm": {Clock: true, Ask: true}}
	return cfg
}

func serveAskers(t *testing.T) *endpoint {
	t.Helper()
	return serveHosts(t, askers(), mcpapi.Config{})
}

const (
	canAsk     = `{"elicitation":{}}`
	canAskTask = `{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	colors     = `,"name":"test_input_required_result_multi_round","arguments":{}`
)

func with(key, content, state string) string {
	text, _ := json.Marshal(state)
	return fmt.Sprintf(`,"inputResponses":{%q:{"action":"accept","content":%s}},"requestState":%s`, key, content, text)
}

// A tool that asks twice is run again with each answer, and the client carries
// the earlier ones.
func TestAskByCallingAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveAskers(t)
		_, m := e.ask("ana", canAsk, "tools/call", colors)
		require.Equal(t, "input_required", m.Result["resultType"], "%v", m)
		require.Contains(t, m.Result["inputRequests"], "step1")
		first := m.Result["requestState"].(string)
		_, m = e.ask("ana", canAsk, "tools/call", colors+with("step1", `{"name":"Ana"}`, first))
		require.Contains(t, m.Result["inputRequests"], "step2")
		require.NotContains(t, m.Result["inputRequests"], "step1")
		second := m.Result["requestState"].(string)
		_, m = e.ask("ana", canAsk, "tools/call", colors+with("step2", `{"color":"red"}`, second))
		require.Equal(t, "complete", m.Result["resultType"], "%v", m)
		require.Equal(t, "Ana likes red", m.Result["content"].([]any)[0].(map[string]any)["text"])

		for what, refused := range map[string]func() response{
			"changed":               func() response { return e.again("ana", colors, second+"A") },
			"with its answers only": func() response { return e.again("ana", colors, second[43:]) },
			"nothing":               func() response { return e.again("ana", colors, "A") },
			"somebody else's":       func() response { return e.again("bo", colors, second) },
			"of another call": func() response {
				return e.again("ana", strings.Replace(colors, "{}", `{"n":1}`, 1), second)
			},
			"of another tool": func() response {
				return e.again("ana", strings.Replace(colors, "multi_round", "elicitation", 1), second)
			},
		} {
			m := refused()
			require.NotNil(t, m.Error, what)
			require.Equal(t, -32602, m.Error.Code, what)
		}
		time.Sleep(2 * time.Hour)
		require.Contains(t, e.again("ana", colors, second).Error.Message, "expired")
	})
}

func (e *endpoint) again(user, params, state string) response {
	e.t.Helper()
	_, m := e.ask(user, canAsk, "tools/call", params+with("step2", `{"color":"red"}`, state))
	return m
}

// A question is asked again if its answer does not fit, and the user sees why. The tool
// never gets that answer, whether the client sends it or carries it along.
func TestAskAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveAskers(t)
		_, m := e.ask("ana", canAsk, "tools/call", colors)
		state := m.Result["requestState"].(string)
		for _, bad := range []string{`{"name":12}`, `{}`, `null`} {
			_, m = e.ask("ana", canAsk, "tools/call", colors+with("step1", bad, state))
			require.Equal(t, "input_required", m.Result["resultType"], "%v", m)
			require.Len(t, m.Result["inputRequests"], 1)
			params := m.Result["inputRequests"].(map[string]any)["step1"].(map[string]any)["params"].(map[string]any)
			require.Contains(t, params["message"], "Step 1: What is your name?")
			require.Contains(t, params["message"], "not an answer to the question step1: ")
			state = m.Result["requestState"].(string)
		}
		_, m = e.ask("ana", canAsk, "tools/call", colors+with("step1", `{"name":"Ana"}`, state))
		require.Contains(t, m.Result["inputRequests"], "step2")
		_, m = e.ask("ana", canAsk, "tools/call", colors+with("step2", `{"color":"red"}`, m.Result["requestState"].(string)))
		require.Equal(t, "Ana likes red", m.Result["content"].([]any)[0].(map[string]any)["text"])
	})
}

// Before 2026-07-28 the server asks while the call waits, one question after the
// other.
func TestElicitation(t *testing.T) {
	const form = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"test","version":"1"}}}` + "\n"
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"test_input_required_result_multi_round","arguments":{}}}` + "\n"
	for name, test := range map[string]struct {
		answers []string // of the user, one after the other
		isError bool
		want    string
	}{
		"accepted": {[]string{`{"action":"accept","content":{"name":"Ana"}}`, `{"action":"accept","content":{"color":"red"}}`}, false, "Ana likes red"},
		"misfit":   {[]string{`{"action":"accept","content":{"name":12}}`}, true, "not an answer to the question step1"},
		"empty":    {[]string{`{"action":"accept"}`}, true, "not an answer to the question step1"},
		"shrugged": {[]string{`{"action":"shrug"}`}, true, "not an answer to the question step1"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := connect(t, open(t, askers()))
				c.sendEach([]byte(form))
				c.send([]byte(call))
				for _, answer := range test.answers {
					var asked struct {
						ID     json.RawMessage
						Method string
						Params struct{ Message string }
					}
					require.NoError(t, json.Unmarshal(c.receive(1), &asked))
					require.Equal(t, "elicitation/create", asked.Method)
					require.Contains(t, asked.Params.Message, "Step ")
					c.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", asked.ID, answer))
				}
				m := c.next()
				require.Equal(t, test.isError, m.Result.IsError)
				require.Contains(t, m.Result.Content[0].Text, test.want)
			})
		})
	}
}

// Nobody is asked through a client that does not declare that it can ask: the tool is
// told so.
func TestAskNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveAskers(t)
		_, m := e.ask("ana", `{}`, "tools/call", colors)
		require.Equal(t, true, m.Result["isError"], "%v", m)
		require.Contains(t, m.Result["content"].([]any)[0].(map[string]any)["text"], "does not declare elicitation")
	})
}

// A task asks through tasks/get, and continues when every question is answered.
func TestTaskAsks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveAskers(t)
		_, m := e.ask("ana", canAskTask, "tools/call", `,"name":"confirm_delete","arguments":{"filename":"a.txt","seconds":5}`)
		require.Equal(t, "task", m.Result["resultType"], "%v", m)
		id := m.Result["taskId"].(string)
		time.Sleep(10 * time.Second)
		m = e.get("ana", id)
		require.Equal(t, "input_required", m.Result["status"])
		var key string // confirm and a number
		for key = range m.Result["inputRequests"].(map[string]any) {
			require.Regexp(t, `^confirm\.[0-9]+$`, key)
		}

		update := func(user, responses string) response {
			responses = strings.Replace(responses, "confirm.1", key, 1)
			_, m := e.ask(user, tasksCapability, "tasks/update", fmt.Sprintf(`,"taskId":%q,"inputResponses":%s`, id, responses))
			return m
		}
		require.Equal(t, -32602, update("bo", `{"confirm.1":{"action":"accept","content":{}}}`).Error.Code)
		require.Equal(t, -32602, update("ana", `{"confirm.1":12}`).Error.Code)
		misfit := update("ana", `{"confirm.1":{"action":"accept","content":{"confirm":"perhaps"}}}`).Error
		require.Equal(t, -32602, misfit.Code)
		require.Contains(t, misfit.Message, "inputResponses: not an answer to the question "+key+": /confirm: ")
		require.Equal(t, -32602, update("ana", `{"confirm.1":{"action":"accept"}}`).Error.Code)
		require.Equal(t, -32602, update("ana", `{"confirm.1":{"action":"shrug"}}`).Error.Code)
		require.Equal(t, "complete", update("ana", `{"other":{"action":"accept"}}`).Result["resultType"])
		require.Equal(t, "input_required", e.get("ana", id).Result["status"])
		require.Equal(t, "complete", update("ana", `{"confirm.1":{"action":"accept","content":{"confirm":true}}}`).Result["resultType"])
		time.Sleep(time.Second)
		m = e.get("ana", id)
		require.Equal(t, "completed", m.Result["status"], "%v", m)
		require.NotContains(t, m.Result, "inputRequests")
		require.Contains(t, fmt.Sprint(m.Result["result"]), "a.txt: accept")
		require.Equal(t, "complete", update("ana", `{"confirm.1":{"action":"decline"}}`).Result["resultType"], "what is answered is not asked any more")
	})
}

// A destructive tool runs once the user has approved it, or waits if the client cannot
// ask its user.
func TestApprovalOfTheUser(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := serviceConfig("test", "confirm")
		cfg.Grants = map[string]plugins.Grant{"test": {Clock: true, Ask: true}, "confirm": {Clock: true, Ask: true}}
		cfg.Approve, cfg.Approvals = nil, server.ApprovalPolicy{Ask: true, Tools: map[string]server.Decision{"test_*": server.DecideAsk}}
		s := open(t, cfg)
		h, err := mcpapi.NewHandler(s, mcpapi.Config{})
		require.NoError(t, err)
		t.Cleanup(h.Close)
		e := &endpoint{Handler: h, t: t, service: s}

		_, m := e.ask("ana", canAsk, "tools/call", colors)
		require.Equal(t, "input_required", m.Result["resultType"], "%v", m)
		require.Contains(t, m.Result["inputRequests"], "toolhost/approval")
		state := m.Result["requestState"].(string)
		_, m = e.ask("ana", canAsk, "tools/call", colors+with("toolhost/approval", `{"decision":"once"}`, state))
		require.Contains(t, m.Result["inputRequests"], "step1.1", "it runs, and asks its own question: %v", m)
		_, m = e.ask("ana", canAsk, "tools/call", colors+with("toolhost/approval", `{"decision":"no"}`, state))
		require.Contains(t, m.Result["inputRequests"], "step1.1", "it was decided")

		_, m = e.ask("ana", canAsk, "tools/call", colors)
		state = m.Result["requestState"].(string)
		_, m = e.ask("ana", canAsk, "tools/call", colors+with("toolhost/approval", `{"decision":"no"}`, state))
		require.Contains(t, fmt.Sprint(m.Result["content"]), "the user did not allow it")

		_, m = e.ask("bo", `{}`, "tools/call", colors)
		require.Contains(t, fmt.Sprint(m.Result["content"]), "It waits until a person approves it")
	})
}
