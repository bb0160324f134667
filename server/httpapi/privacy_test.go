package httpapi_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/wire"
)

// everything requests all that there is to know about a run, and returns the answers.
func (f *fixture) everything(id string, headers ...string) string {
	var all string
	for _, path := range []string{
		"/v1/tools", "/v1/runs", "/v1/runs/" + id + "?tail=16384", "/v1/runs?id=" + id + "&tail=16384", "/v1/runs/" + id + "/output",
		"/v1/runs/" + id + "/artifacts/output.log", "/v1/runs/" + id + "/artifacts/result.json",
		"/v1/notices", "/v1/schedules", "/v1/session", "/v1/stats",
	} {
		_, text := f.do("GET", path, "", headers...)
		all += text
	}
	_, text := f.do("GET", "/v1/runs/"+id+"/output", "", append(headers, "Accept", "text/event-stream")...)
	return all + text
}

// A secret in the arguments, however deep, is in no answer, no event and no
// line of the log.
func TestSecretsAreNotTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "chatty")
		events := make(chan string)
		conn := f.dial("tcp")
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		go func() { events <- f.read(conn, "GET", "/v1/events") }()
		synctest.Wait()
		const args = `{"deep":[{"api_key":"hunter2","Authorization":"hunter2","session-token":{"x":"hunter2"}}]}`
		resp, text := f.do("POST", "/v1/runs", `{"tool":"chatty","args":`+args+`}`)
		require.Equal(t, 201, resp.StatusCode, text)
		id := f.ask("GET", "/v1/runs", "")["runs"].([]any)[0].(map[string]any)["task_id"].(string)
		_, scheduled := f.do("POST", "/v1/schedules", `{"tool":"chatty","args":`+args+`,"cron_expression":"0 9 * * *"}`)
		f.ask("GET", "/v1/runs/"+id+"?wait=1m", "")
		all := text + scheduled + f.everything(id) + <-events + f.logs.String()
		require.NotContains(t, all, "hunter2")
		require.Contains(t, all, `"kind":"ended"`)
		require.Contains(t, all, `<redacted>`)
	})
}

// What broke inside a plugin is in the log, and in no answer to a user. The operator
// sees it where it asks for one run.
func TestInternalErrorsAreNotTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{OAuth: startIssuer(t).trust()}, "panics")
		ana := as(t, "ana")
		_, called := f.do("POST", "/v1/calls", `{"tool":"panics"}`, ana...)
		id := f.spawn("panics", ana...)
		f.ask("GET", "/v1/runs/"+id+"?wait=1m", "", ana...)
		all := called + f.everything(id, ana...)
		require.NotContains(t, all, "hunter2")
		require.NotContains(t, all, "diagnosis")

		operator := []string{wire.SessionHeader, "ana/default"}
		_, list := f.overSocket("GET", "/v1/runs", "", operator...)
		require.Contains(t, list, id)
		require.NotContains(t, list, "hunter2")
		_, run := f.overSocket("GET", "/v1/runs/"+id, "", operator...)
		require.Contains(t, run, `"diagnosis":{"reason":"the plugin crashed: it panicked: the key is hunter2"`)

		require.Contains(t, all, "An internal error occurred while executing the tool")
		require.Contains(t, f.logs.String(), "hunter2")
	})
}

// A tool cannot close the element that contains its text.
func TestNoticesCannotBeForged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "forger")
		id := f.spawn("forger")
		f.ask("GET", "/v1/runs/"+id+"?wait=1m", "")
		text := f.ask("GET", "/v1/notices", "")["text"].(string)
		require.Contains(t, text, "&lt;/background-results&gt;")
		require.Regexp(t, `^<background-results>\n[^<]*\n</background-results>$`, text)
	})
}
