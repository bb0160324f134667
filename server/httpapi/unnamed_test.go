package httpapi_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/wire"
)

// Clients that name no session share nothing. Each finds its runs by their ids, and
// everything else in the session that the server gave it.
func TestClientsThatNameNoSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{OAuth: startIssuer(t).trust(), Token: "s3cret"}, "sleeper", "echo")
		operator, ana, bo := []string{"Authorization", "Bearer s3cret"}, as(t, "ana"), as(t, "bo")
		unnamed := func(caller []string) []string {
			return append(caller[:len(caller):len(caller)], wire.SessionHeader, "")
		}
		listed := func(caller []string) []any {
			runs, _ := f.ask("GET", "/v1/runs", "", caller...)["runs"].([]any)
			return runs
		}

		for _, caller := range [][]string{operator, ana} {
			resp, text := f.do("POST", "/v1/runs", `{"tool":"sleeper"}`, unnamed(caller)...)
			require.Equal(t, 201, resp.StatusCode, text)
			session := resp.Header.Get(wire.SessionHeader)
			require.Regexp(t, `^~/[a-z2-7]{26}$`, session)
			require.Contains(t, text, `"session":"`+session+`"`)
			id := match(t, `"task_id":"(bg_[a-z2-7]{26})"`, text)
			named := append(caller[:len(caller):len(caller)], wire.SessionHeader, session)

			require.Empty(t, listed(unnamed(caller)), "another client")
			require.Empty(t, listed(caller), "the default session")
			require.Len(t, listed(named), 1, "the client itself")
			resp, _ = f.do("GET", "/v1/runs", "", named...)
			require.Empty(t, resp.Header.Values(wire.SessionHeader), "it knows its session")

			// By its id, alone and with a run of yet another session.
			second := f.spawn("sleeper", unnamed(caller)...)
			synctest.Wait() // until both run
			require.Equal(t, "running", f.ask("GET", "/v1/runs/"+id, "", unnamed(caller)...)["status"])
			both := f.ask("GET", "/v1/runs?id="+id+"&id="+second, "", unnamed(caller)...)
			require.Len(t, both["runs"], 2)
			require.Empty(t, both["missing"])
			require.Equal(t, wire.CodeNotFound, f.refused("GET", "/v1/runs/"+id, "", append(caller[:len(caller):len(caller)], wire.SessionHeader, "x")...).Code, "who names a session is in that one")
			for _, other := range [][]string{operator, ana, bo} {
				if other[1] != caller[1] {
					require.Equal(t, wire.CodeNotFound, f.refused("GET", "/v1/runs/"+id, "", unnamed(other)...).Code)
					require.Equal(t, wire.CodeNotFound, f.refused("POST", "/v1/runs/"+id+"/stop", "{}", unnamed(other)...).Code)
				}
			}
			for _, id := range []string{id, second} {
				f.ask("POST", "/v1/runs/"+id+"/stop", `{"force":true}`, unnamed(caller)...)
				require.Equal(t, "canceled", f.ask("GET", "/v1/runs/"+id+"?wait=1m", "", unnamed(caller)...)["status"])
			}
		}

		// A schedule too is found by its id alone.
		schedule, _ := f.ask("POST", "/v1/schedules", `{"tool":"echo","cron_expression":"0 0 * * *"}`, unnamed(operator)...)["schedule_id"].(string)
		require.Empty(t, f.ask("GET", "/v1/schedules", "", unnamed(operator)...)["schedules"])
		require.Equal(t, true, f.ask("GET", "/v1/schedules/"+schedule, "", unnamed(operator)...)["enabled"])
		require.Equal(t, wire.CodeNotFound, f.refused("DELETE", "/v1/schedules/"+schedule, "", unnamed(ana)...).Code)
		require.Equal(t, wire.CodeNotFound, f.refused("POST", "/v1/schedules/"+schedule+"/disable", "", unnamed(ana)...).Code)
		require.Equal(t, false, f.ask("POST", "/v1/schedules/"+schedule+"/disable", "", unnamed(operator)...)["enabled"])
		require.Equal(t, schedule, f.ask("DELETE", "/v1/schedules/"+schedule, "", unnamed(operator)...)["schedule_id"])
		require.Equal(t, wire.CodeNotFound, f.refused("DELETE", "/v1/schedules/"+schedule, "", unnamed(operator)...).Code)

		p := f.refused("POST", "/v1/runs", `{"tool":"echo"}`, append(unnamed(operator), wire.KeyHeader, "once")...)
		require.Equal(t, wire.KeyHeader, p.Field, "a repeated request would start another run")
	})
}

// A client that names no session is promised nothing of its later requests, and its list
// does not say that it has no runs.
func TestNothingIsPromisedToClientsThatNameNoSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const promise, check = "its end comes with a later tool result", "wait for its end with check_background"
		f := serve(t, httpapi.Config{}, "sleeper")
		for session, want := range map[string][2]string{"": {check, promise}, "ana": {promise, check}} {
			for _, request := range [][3]string{
				{"GET", "/v1/tools", ""}, {"GET", "/v1/tools?all=true", ""}, {"GET", "/v1/tools/spawn_background", ""}, {"POST", "/v1/calls", `{"tool":"sleeper"}`},
			} {
				_, text := f.do(request[0], request[1], request[2], wire.SessionHeader, session)
				require.Contains(t, text, want[0], request[1])
				require.NotContains(t, text, want[1], request[1])
			}
		}
		const list = `{"tool":"check_background","args":{"list":true}}`
		require.Equal(t, map[string]any{"tasks": []any{}, "next": "your runs are not listed here: find them by their task_ids only"}, f.ask("POST", "/v1/calls", list, wire.SessionHeader, "")["value"])
		require.Equal(t, map[string]any{"active": 0.0, "finished": 0.0, "tasks": []any{}}, f.ask("POST", "/v1/calls", list, wire.SessionHeader, "bo")["value"])
	})
}

// Over MCP a connection is a session. Requests that stand alone find runs by their
// ids, and an answer to a question the call that asked it.
func TestMCPClientsThatNameNoSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serveUsers(t)
		unnamed := append(as(t, "ana"), wire.SessionHeader, "")
		one, other := f.legacy(unnamed), f.legacy(unnamed)
		call := func(session, tool, args string) string {
			body := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + args + `}}`
			resp, text := f.do("POST", "/mcp", body, append(append(unnamed[:len(unnamed):len(unnamed)], mcpHeaders(session)...), "X", "")...)
			require.Equal(t, 200, resp.StatusCode, text)
			return text
		}

		id := match(t, `task_id\\":\\"(bg_[a-z2-7]{26})`, call(one, "spawn_background", `{"tool":"sleeper","args":{}}`))
		require.Contains(t, call(one, "check_background", `{"list":true}`), id)
		require.NotContains(t, call(other, "check_background", `{"list":true}`), id)
		require.Contains(t, call(other, "check_background", `{"task_id":"`+id+`","wait_seconds":0}`), "running")

		_, text := f.modern(unnamed, "tools/call", `,"name":"check_background","arguments":{"list":true}`)
		require.NotContains(t, text, id)
		_, text = f.modern(unnamed, "tasks/get", `,"taskId":"`+id+`"`)
		require.Contains(t, text, `"status":"working"`)
		_, text = f.modern(append(as(t, "bo"), wire.SessionHeader, ""), "tasks/get", `,"taskId":"`+id+`"`)
		require.Contains(t, text, "there is no task")
		_, text = f.modern(unnamed, "tools/call", `,"name":"stop_background","arguments":{"task_id":"`+id+`","force":true}`)
		require.Contains(t, text, "canceled")
	})
}
