package mcpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// askUnnamed makes a request of a client that names no session, and returns what it
// is answered.
func (e *endpoint) askUnnamed(version, session, method, params string) string {
	e.t.Helper()
	e.id++
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}%s}}`, e.id, method, params)
	if version < "2026" {
		body = fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"t","version":"1"}%s}}`, e.id, method, version, params)
	}
	r := httptest.NewRequestWithContext(e.t.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Session-Id": session,
		"Mcp-Protocol-Version": version, "Mcp-Method": method, "Mcp-Name": strings.Split(strings.TrimPrefix(params, `,"name":"`), `"`)[0],
	} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	w := httptest.NewRecorder()
	who := identity.Caller{Session: wire.UnnamedPrefix + fmt.Sprint("request", e.id), Unnamed: true}
	e.Handler.ServeHTTP(w, r.WithContext(identity.NewContext(r.Context(), who)))
	return w.Body.String() + w.Header().Get("Mcp-Session-Id")
}

// Nothing promises notices to a client that does not name its session: its next request
// may be in another one. It is sent to check_background, and the list does not claim that
// it has no runs.
func TestNothingIsPromisedWithoutSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const promise, check = "with a later tool result", "with check_background"
		e := serveHTTP(t, server.Config{ParkAfter: time.Second})
		for _, ask := range [][2]string{
			{"server/discover", ""}, {"tools/list", ""}, {"tools/call", `,"name":"sleeper","arguments":{}`},
		} {
			said := e.askUnnamed("2026-07-28", "", ask[0], ask[1])
			require.NotContains(t, said, promise, ask[0])
			require.Contains(t, said, check, ask[0])
		}
		spawned := e.askUnnamed("2026-07-28", "", "tools/call", `,"name":"spawn_background","arguments":{"tool":"forever","args":{}}`)
		id := anyTask.FindString(spawned)
		for range 3 { // the last one says that nothing is new
			said := e.askUnnamed("2026-07-28", "", "tools/call", fmt.Sprintf(`,"name":"check_background","arguments":{"task_ids":[%q],"wait_seconds":0}`, id))
			require.Contains(t, said, id)
			require.NotContains(t, said, promise)
		}

		require.Equal(t, `{"tasks":[],"next":"your runs are not listed here: find them by their task_ids only"}`, strings.ReplaceAll(
			regexp.MustCompile(`\{\\"tasks.*?\}`).FindString(e.askUnnamed("2026-07-28", "", "tools/call", `,"name":"check_background","arguments":{}`)), `\`, ""))

		scheduled := func(when string) string {
			return e.askUnnamed("2026-07-28", "", "tools/call", `,"name":"spawn_background","arguments":{"tool":"forever","args":{},"schedule":`+when+`}`)
		}
		require.Contains(t, scheduled(`{"cron_expression":"* * * * *"}`), "ask the user to set the header Toolhost-Session", "nobody could list it")
		require.Contains(t, scheduled(`{"scheduled_at":"2001-01-01T00:00:00Z"}`), "schedule_id")

		said := e.askUnnamed("2025-11-25", "", "initialize", "")
		require.NotContains(t, said, promise, "it may open a session for each call")
		require.Contains(t, said, check)
		_, m := e.ask("ana", "{}", "tools/list", "")
		require.Contains(t, fmt.Sprint(m.Result), promise, "it names its session, and the others have changed nothing")
	})
}

// A call names the language of its user, and a run that it starts keeps it.
func TestLocaleOfCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		heard := ""
		e := serveHTTP(t, server.Config{Tools: []gotool.Tool{{
			Name: "hears", Description: "For tests.", Hints: abi.Hints{SupportsBackground: true},
			Handler: gotool.Handle(func(_ context.Context, c *gotool.Call, _ struct{}) (gotool.None, error) {
				heard += c.Locale() + "|"
				return gotool.None{}, nil
			}),
		}}})
		call := func(tool, args, locale string) response {
			e.id++
			_, m := e.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"toolhost/locale":%s}}}`, e.id, tool, args, locale),
				"User", "ana", "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool)
			return m
		}
		for _, bad := range []string{`7`, `"de_CH"`, `"` + strings.Repeat("a", 65) + `"`, `null`} {
			m := call("hears", `{}`, bad)
			require.NotNil(t, m.Error, bad)
			require.Equal(t, -32602, m.Error.Code)
			require.Contains(t, m.Error.Message, "toolhost/locale")
		}
		require.Nil(t, call("hears", `{}`, `"de-CH"`).Error)
		require.Nil(t, call("spawn_background", `{"tool":"hears","args":{}}`, `"fr"`).Error)
		synctest.Wait()
		require.Equal(t, "de-CH|fr|", heard)
	})
}
