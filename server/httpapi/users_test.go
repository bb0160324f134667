package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/wire"
)

// overSocket sends a request as the operator.
func (f *fixture) overSocket(method, path, body string, headers ...string) (*http.Response, string) {
	f.t.Helper()
	return exchange(f.t, f.dial("unix"), newRequest(f.t, method, path, body, headers...))
}

// Users share nothing, though their sessions have the same name: not what runs, nor what
// ended, nor notices, schedules, events, output, files and keys. For objects of others,
// the answer is as for ones that never existed.
func TestUsersAreApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{OAuth: startIssuer(t).trust()}, "echo", "sleeper")
		key := []string{wire.KeyHeader, "one"}
		ended := f.spawn("echo", as(t, "ana", key...)...)
		running := f.spawn("sleeper", as(t, "ana")...)
		schedule := f.ask("POST", "/v1/schedules", `{"tool":"echo","cron_expression":"0 9 * * *"}`, as(t, "ana")...)["schedule_id"].(string)
		f.ask("GET", "/v1/runs/"+ended+"?wait=1m", "", as(t, "ana")...)

		for _, subject := range []string{"bo", "Ana", "ana/default", "~ana", "ana\x00", "аna"} {
			bo := as(t, subject)
			for _, c := range []struct{ method, path, body string }{
				{"GET", "/v1/runs/%s", ""}, {"GET", "/v1/runs?id=%s", ""}, {"GET", "/v1/runs/%s/output", ""},
				{"GET", "/v1/runs/%s/artifacts/output.log", ""}, {"POST", "/v1/runs/%s/stop", `{"force":true}`},
			} {
				never := f.refused(c.method, fmt.Sprintf(c.path, "bg_"+strings.Repeat("a", 26)), c.body, bo...)
				for _, id := range []string{ended, running} {
					p := f.refused(c.method, fmt.Sprintf(c.path, id), c.body, bo...)
					require.Equal(t, wire.CodeNotFound, p.Code)
					p.Detail = strings.ReplaceAll(p.Detail, id, "bg_"+strings.Repeat("a", 26))
					require.Equal(t, never, p, c.path)
				}
			}
			for _, method := range []string{"GET", "DELETE"} {
				require.Equal(t, wire.CodeNotFound, f.refused(method, "/v1/schedules/"+schedule, "", bo...).Code)
			}
			for _, path := range []string{"/v1/runs", "/v1/notices", "/v1/schedules", "/v1/session"} {
				_, text := f.do("GET", path, "", bo...)
				require.NotRegexp(t, `bg_|sc_`, text)
			}
			_, text := f.do("POST", "/v1/notices/ack", `{"task_ids":["`+ended+`"]}`, bo...)
			require.NotContains(t, text, ended)
			own := f.spawn("echo", as(t, subject, key...)...)
			require.NotEqual(t, ended, own, "a key is its user's")
			resp, _ := f.do("DELETE", "/v1/session", "", bo...)
			require.Equal(t, http.StatusNoContent, resp.StatusCode)
		}

		ana := as(t, "ana")
		require.Equal(t, "running", f.ask("GET", "/v1/runs/"+running, "", ana...)["status"])
		require.Len(t, f.ask("GET", "/v1/notices", "", ana...)["notices"], 1)
		require.Equal(t, true, f.ask("GET", "/v1/schedules/"+schedule, "", ana...)["enabled"])
		require.Equal(t, ended, f.spawn("echo", as(t, "ana", key...)...))

		for _, path := range []string{"/v1/runs", "/v1/schedules", "/v1/session", "/v1/runs/" + running, "/v1/schedules/" + schedule} {
			_, text := f.do("GET", path, "", ana...)
			require.Contains(t, text, `"session":"default"`, "a user need not know its own key")
			require.NotContains(t, text, "ana/")
			_, text = f.overSocket("GET", path, "", wire.SessionHeader, "ana/default")
			require.Contains(t, text, `"session":"ana/default"`, "the operator sees it by its key")
		}
		_, text := f.overSocket("GET", "/v1/runs", "")
		require.NotContains(t, text, "bg_", "the operator's own session is apart too")
	})
}

// Users see only their own events.
func TestEventsOfUsers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{OAuth: startIssuer(t).trust()}, "echo")
		streams := map[string]chan string{"ana": make(chan string), "bo": make(chan string)}
		for user, events := range streams {
			conn := f.dial("tcp")
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
			headers := as(t, user)
			go func() {
				go func() { _ = newRequest(t, "GET", "/v1/events", "", headers...).Write(conn) }()
				var all strings.Builder
				buffer := make([]byte, 64<<10)
				for {
					n, err := conn.Read(buffer)
					if all.Write(buffer[:n]); err != nil {
						events <- all.String()
						return
					}
				}
			}()
		}
		synctest.Wait()
		id := f.spawn("echo", as(t, "ana")...)
		seen := <-streams["ana"]
		require.Contains(t, seen, id)
		require.Contains(t, seen, `"session":"default"`)
		require.NotContains(t, seen, "ana/")
		other := <-streams["bo"]
		require.Contains(t, other, ": alive")
		require.NotContains(t, other, "bg_")
	})
}

// A stream ends when the token of its request expires, and a call does not.
func TestStreamsEndWithTheToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{OAuth: startIssuer(t).trust()}, "chatty")
		token := []string{"Authorization", "Bearer " + changed("exp", time.Now().Add(10*time.Second).Unix())(t)}
		id := f.spawn("chatty", token...)
		began := time.Now()
		resp, _ := f.do("GET", "/v1/events", "", append(token, "Accept", "text/event-stream")...)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, 10*time.Second+clockSkew, time.Since(began))
		time.Sleep(time.Second)
		require.Equal(t, wire.CodeUnauthorized, f.refused("GET", "/v1/runs/"+id, "", append(token, "Accept", "text/event-stream")...).Code)

		token = []string{"Authorization", "Bearer " + changed("exp", time.Now().Add(-clockSkew+10*time.Second).Unix())(t)}
		result := f.ask("POST", "/v1/calls", `{"tool":"chatty"}`, append(token, "Accept", "text/event-stream")...)
		require.Equal(t, "success", result["kind"])
		require.Greater(t, time.Since(began), time.Minute)
	})
}

// It does whatever the client says it takes, and over MCP in both eras. Who
// waits for a run is told to log in again.
func TestEveryStreamEndsWithTheToken(t *testing.T) {
	const listen = `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{` + clientMeta + `,"notifications":{"toolsListChanged":true}}}`
	for name, test := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
	}{
		"events, whatever is taken": {"GET", "/v1/events", "", nil, 200},
		"events, all is taken":      {"GET", "/v1/events", "", []string{"Accept", "*/*"}, 200},
		"a wait":                    {"GET", "/v1/runs/RUN?wait=9m", "", nil, 401},
		"a wait with events":        {"GET", "/v1/runs/RUN?wait=9m", "", []string{"Accept", "text/event-stream"}, 401},
		"output":                    {"GET", "/v1/runs/RUN/output", "", []string{"Accept", "text/event-stream"}, 200},
		"MCP, a session's stream":   {"GET", "/mcp", "", []string{"Accept", "*/*"}, 200},
		"MCP, a subscription": {"POST", "/mcp", listen, []string{
			"Accept", "application/json, text/event-stream", "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen"}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := serveUsers(t)
				token := []string{"Authorization", "Bearer " + changed("exp", time.Now().Add(10*time.Second).Unix())(t)}
				headers := append(token[:2:2], test.headers...)
				if test.method == "GET" && test.path == "/mcp" {
					headers = append(headers, "Mcp-Session-Id", f.legacy(token), "Mcp-Protocol-Version", "2025-06-18")
				}
				path := strings.ReplaceAll(test.path, "RUN", f.spawn("sleeper", token...))
				began := time.Now()
				conn := f.dial("tcp")
				require.NoError(t, conn.SetDeadline(began.Add(time.Hour)))
				resp, text := exchange(t, conn, newRequest(t, test.method, path, test.body, headers...))
				require.Equal(t, test.status, resp.StatusCode, text)
				require.Equal(t, 10*time.Second+clockSkew, time.Since(began), text)
				require.Zero(t, f.OpenAnswers())
			})
		})
	}
}

// A user's key has one form, whatever the issuer calls the user, and no two
// users have the same.
func TestUserKeys(t *testing.T) {
	const hashed = `^~[0-9a-f]{64}/default$`
	for subject, want := range map[string]string{
		"ana": `^ana/default$`, "a.b_c:d@e-f": `^a\.b_c:d@e-f/default$`, strings.Repeat("a", 64): `^a{64}/default$`, strings.Repeat("a", 65): hashed,
		"auth0|5": hashed, "a/b": hashed, "~a": hashed, "é": hashed, "a b": hashed, " a": hashed, "a\n": hashed, strings.Repeat("é", 4000): hashed,
	} {
		bubble(t, func(t *testing.T) {
			f := serve(t, httpapi.Config{OAuth: startIssuer(t).trust()}, "echo")
			f.spawn("echo", as(t, subject)...)
			found := false
			for _, key := range keysOf(f) {
				require.Regexp(t, want, key)
				found = true
			}
			require.True(t, found)
		})
	}
}

// keysOf are the keys of the sessions that have runs, from the log.
func keysOf(f *fixture) (keys []string) {
	time.Sleep(time.Second)
	for line := range strings.Lines(f.logs.String()) {
		var entry struct{ Session string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Session != "" {
			keys = append(keys, entry.Session)
		}
	}
	return keys
}

// Which session names are allowed, and for whom.
func TestSessionNames(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{OAuth: startIssuer(t).trust(), Token: "s3cret"}, "echo")
		hash := "~" + strings.Repeat("0f", 32)
		long := strings.Repeat("a", 128)
		for name, by := range map[string]string{
			"x": "both", long: "both", "a.b_c:d@e-f": "both",
			"ana/x": "operator", "ana/" + long: "operator", strings.Repeat("a", 64) + "/x": "operator", hash + "/x": "operator",
			"ana/x/y": "none", "/x": "none", "ana/": "none", "/": "none", long + "a": "none", strings.Repeat("a", 65) + "/x": "none", "~/x": "none",
			"~/abcdefghijklmnopqrstuvwxyz": "both", "ana/~/abcdefghijklmnopqrstuvwxyz": "operator", "bo/~/x": "none", "~/~/abcdefghijklmnopqrstuvwxyz": "none",
			"~a/x": "none", hash: "none", "?/default": "none", "../x": "operator", "ana/../bo/x": "none", "a b": "none", "é": "none", "ana\\x": "none",
		} {
			resp, _ := f.do("GET", "/v1/runs", "", as(t, "ana", wire.SessionHeader, name)...)
			require.Equal(t, by == "both", resp.StatusCode == 200, name)
			for _, headers := range [][]string{{"Authorization", "Bearer s3cret"}} {
				resp, _ := f.do("GET", "/v1/runs", "", append(headers, wire.SessionHeader, name)...)
				require.Equal(t, by != "none", resp.StatusCode == 200, name)
				require.Contains(t, []int{200, 400}, resp.StatusCode)
			}
		}
	})
}

// What is of all sessions is the operator's, by whatever way the operator
// comes; a user is told why. The page's paths take the token as a password too,
// for browsers, and no other path does.
func TestOperatorOnly(t *testing.T) {
	basic := func(password string) string {
		r := newRequest(t, "GET", "/", "")
		r.SetBasicAuth("anybody", password)
		return r.Header.Get("Authorization")
	}
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{OAuth: startIssuer(t).trust(), Token: "s3cret"}, "echo")
		bearer := basic("s3cret")
		for _, path := range []string{"/v1/stats", "/v1/stats/tools", "/v1/stats/history", "/v1/runs?all_sessions=true", "/v1/schedules?all_sessions=true", "/", "/ui/", "/ui/x"} {
			p := f.refused("GET", path, "", as(t, "ana")...)
			require.Equal(t, wire.CodeForbidden, p.Code)
			require.Contains(t, p.Detail, "operator")
			resp, text := f.do("GET", path, "", "Authorization", "Bearer s3cret")
			require.NotContains(t, []int{401, 403}, resp.StatusCode, text)

			page := !strings.HasPrefix(path, "/v1/")
			resp, _ = f.do("GET", path, "", "Authorization", bearer)
			require.Equal(t, page, resp.StatusCode != 401, path)
			for _, wrong := range [][]string{{}, {"Authorization", basic("s3cre")}, {"Authorization", basic("")}, {"Authorization", "Basic !"}, {"Authorization", "Bearer x"}} {
				resp, _ = f.do("GET", path, "", wrong...)
				require.Equal(t, 401, resp.StatusCode)
				scheme, _, _ := strings.Cut(resp.Header.Get("WWW-Authenticate"), " ")
				require.Equal(t, map[bool]string{true: "Basic", false: "Bearer"}[page], scheme)
			}
		}
		resp, _ := f.overSocket("GET", "/v1/stats", "")
		require.Equal(t, 200, resp.StatusCode)
	})
	bubble(t, func(t *testing.T) { // without a token there is no password
		f := serve(t, httpapi.Config{OAuth: startIssuer(t).trust()}, "echo")
		for _, password := range []string{"", "s3cret"} {
			resp, _ := f.do("GET", "/", "", "Authorization", basic(password))
			require.Equal(t, 401, resp.StatusCode)
			require.Contains(t, resp.Header.Get("WWW-Authenticate"), "Bearer ")
		}
	})
}

// Over MCP, in both eras, users share nothing either: not tasks, nor files of
// runs, nor the agent's own tools, nor what Mcp-Session-Id names.
func TestUsersAreApartOverMCP(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serveUsers(t)
		_, text := f.modern(as(t, "ana"), "tools/call", `,"name":"sleeper","arguments":{}`)
		task := match(t, `"taskId":"(bg_[a-z2-7]{26})"`, text)
		ended := f.spawn("echo", as(t, "ana")...)
		f.ask("GET", "/v1/runs/"+ended+"?wait=1m", "", as(t, "ana")...)
		file := `,"uri":"toolhost://runs/` + ended + `/output.log"`
		check := `,"name":"check_background","arguments":{"task_id":"` + task + `"}`
		list := `,"name":"check_background","arguments":{"list":true}`

		_, text = f.modern(as(t, "ana"), "tasks/get", `,"taskId":"`+task+`"`)
		require.Contains(t, text, `"status":"working"`)
		_, text = f.modern(as(t, "ana"), "resources/read", file)
		require.Contains(t, text, "echoing")
		for _, other := range [][]string{as(t, "bo"), {"Authorization", "Bearer s3cret"}} {
			for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
				_, text := f.modern(other, method, `,"taskId":"`+task+`","inputResponses":{}`)
				require.Contains(t, text, "there is no task")
			}
			_, text = f.modern(other, "resources/read", file)
			require.NotContains(t, text, "echoing")
			_, text = f.modern(other, "tools/call", check)
			require.Contains(t, text, `"isError":true`)
			_, text = f.modern(other, "tools/call", list)
			require.NotContains(t, text, task)
		}

		session := f.legacy(as(t, "ana"))
		_, text = f.inSession(as(t, "ana"), session, "tools/call", `{"name":"check_background","arguments":{"task_id":"`+task+`"}}`)
		require.Contains(t, text, "running")
		require.NotContains(t, text, "ana/")
		_, text = f.inSession(as(t, "bo"), f.legacy(as(t, "bo")), "tools/call", `{"name":"check_background","arguments":{"task_id":"`+task+`"}}`)
		require.NotContains(t, text, "running")
		_, text = f.modern(append([]string{"Authorization", "Bearer s3cret"}, wire.SessionHeader, "ana/default"), "tasks/get", `,"taskId":"`+task+`"`)
		require.Contains(t, text, `"status":"working"`, "the operator sees it by its key")
	})
}

// An MCP session belongs only to the caller who began it. Other callers get the
// same answer as for an unknown session, and it continues for its own.
func TestMCPSessionsAreBound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serveUsers(t)
		callers := map[string][]string{"ana": as(t, "ana"), "bo": as(t, "bo"), "operator": {"Authorization", "Bearer s3cret"}}
		for name, caller := range callers {
			session := f.legacy(caller)
			for stranger, other := range callers {
				if stranger == name {
					continue
				}
				for _, method := range []string{"POST", "GET", "DELETE"} {
					var answers []string
					for _, id := range []string{session, strings.Repeat("A", len(session))} {
						body := ""
						if method == "POST" {
							body = `{"jsonrpc":"2.0","id":9,"method":"tools/list"}`
						}
						resp, text := f.do(method, "/mcp", body, append(other[:2:2], mcpHeaders(id)...)...)
						require.Equal(t, http.StatusNotFound, resp.StatusCode, "%s of %s by %s: %s", method, name, stranger, text)
						answers = append(answers, text)
					}
					require.Equal(t, answers[0], answers[1], method)
				}
			}
			_, text := f.inSession(caller, session, "tools/list", `{}`)
			require.Contains(t, text, "sleeper")
			resp, _ := f.overSocket("DELETE", "/mcp", "", mcpHeaders(session)...)
			require.Equal(t, name == "operator", resp.StatusCode == http.StatusNoContent, "the operator is the same over the socket")
		}
	})
}

// Users cannot take everything: there is room for the operator, also where it
// looks at what is a user's.
func TestOperatorFindsRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{OAuth: startIssuer(t).trust(), Token: "s3cret"}, "echo")
		f.limited(64) // 60 of them for requests, 53 of users, 15 of one
		for i := range 60 - 60/8 {
			user := strings.Join(as(t, fmt.Sprintf("user%d", i/15)), ": ")
			f.begin("GET /v1/events HTTP/1.1\nHost: localhost\n" + user + "\n\n")
		}
		synctest.Wait()
		p := f.refused("POST", "/v1/calls", `{"tool":"echo"}`, as(t, "ana")...)
		require.Equal(t, wire.CodeLimit, p.Code)
		require.Equal(t, 60-60/8, p.Max)
		for _, session := range []string{"default", "ana/default"} {
			f.ask("POST", "/v1/calls", `{"tool":"echo"}`, "Authorization", "Bearer s3cret", wire.SessionHeader, session)
		}
	})
}

// serveUsers serves MCP too, to operators by token and to users.
func serveUsers(t *testing.T) *fixture {
	f, _ := serveMCP(t, httpapi.Config{OAuth: startIssuer(t).trust(), Token: "s3cret"}, "echo", "sleeper")
	return f
}

const clientMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

// modern makes a request of 2026-07-28.
func (f *fixture) modern(caller []string, method, params string) (*http.Response, string) {
	f.t.Helper()
	var named struct{ Name, TaskID, URI string }
	require.NoError(f.t, json.Unmarshal([]byte("{"+strings.TrimPrefix(params, ",")+"}"), &named))
	headers := append(caller[:len(caller):len(caller)], "Accept", "application/json, text/event-stream", "Mcp-Protocol-Version", "2026-07-28",
		"Mcp-Method", method, "Mcp-Name", named.Name+named.TaskID+named.URI)
	return f.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+clientMeta+params+`}}`, headers...)
}

// legacy begins a session and returns its id.
func (f *fixture) legacy(caller []string) string {
	f.t.Helper()
	resp, text := f.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		append(caller[:len(caller):len(caller)], "Accept", "application/json, text/event-stream")...)
	require.Equal(f.t, 200, resp.StatusCode, text)
	id := resp.Header.Get("Mcp-Session-Id")
	require.NotEmpty(f.t, id)
	return id
}

func mcpHeaders(session string) []string {
	return []string{"Accept", "application/json, text/event-stream", "Mcp-Session-Id", session, "Mcp-Protocol-Version", "2025-06-18"}
}

func (f *fixture) inSession(caller []string, session, method, params string) (*http.Response, string) {
	f.t.Helper()
	return f.do("POST", "/mcp", `{"jsonrpc":"2.0","id":2,"method":"`+method+`","params":`+params+`}`, append(caller[:len(caller):len(caller)], mcpHeaders(session)...)...)
}

// match returns the first group of a pattern that has to be there.
func match(t *testing.T, pattern, text string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	require.NotNil(t, found, "%s", text)
	return found[1]
}
