package httpapi_test

import (
	"context"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/wire"
)

// A wait for the end of a run, or of several, ends when one of them begins to
// wait for its user. While that run waits, checks do not block.
func TestWaitsEndWithQuestions(t *testing.T) {
	for name, path := range map[string]func(run, other string) string{
		"one run": func(run, _ string) string { return "/v1/runs/" + run + "?wait=9m" },
		"the first of two": func(run, other string) string {
			return "/v1/runs?" + url.Values{"id": {other, run}, "wait": {"9m"}}.Encode()
		},
		"both of two": func(run, other string) string {
			return "/v1/runs?" + url.Values{"id": {other, run}, "wait": {"9m"}, "until": {"all"}}.Encode()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := serve(t, httpapi.Config{}, "ponders", "sleeper")
				began := time.Now()
				run, other := f.ponder(), f.spawn("sleeper")
				for range 2 {
					found := f.ask("GET", path(run, other), "")
					require.Equal(t, time.Minute, time.Since(began), "when it asks, and at once from then on")
					if list, ok := found["runs"].([]any); ok {
						found, _ = list[1].(map[string]any)
					}
					require.Equal(t, run, found["task_id"])
					require.Contains(t, found["questions"], "name.1")
				}
				f.do("POST", "/v1/runs/"+run+"/answers", `{"answers":{"name.1":{"action":"decline"}}}`)
				require.Equal(t, "succeeded", f.ask("GET", "/v1/runs/"+run+"?wait=9m", "")["status"])
			})
		})
	}
}

// ponder calls the tool that asks its user after a minute, as MCP does for a
// client of tasks, and returns the id of the run that the call has become by
// then.
func (f *fixture) ponder() string {
	f.t.Helper()
	var id string
	_, err := f.service.Call(f.t.Context(), server.Request{
		Session: wire.DefaultSession, Tool: "ponders", AskLater: true, OnPark: func(run wire.Run) { id = run.TaskID },
		Ask: func(context.Context, abi.Questions) (abi.Answers, error) { return abi.Answers{}, server.ErrAskAgain },
	})
	require.NoError(f.t, err)
	require.NotEmpty(f.t, id)
	synctest.Wait()
	return id
}

// TestDirectCallAsks: a call over HTTP that asks becomes a run at once. Its questions are
// answered like those of any run.
func TestDirectCallAsks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "asker")
		began := time.Now()
		result := f.ask("POST", "/v1/calls", `{"tool":"asker"}`)
		value, _ := result["value"].(map[string]any)
		require.Equal(t, "background", value["type"], "%v", result)
		require.Zero(t, time.Since(began))
		require.Contains(t, value["questions"], "name.1")
		run, _ := value["task_id"].(string)
		require.Contains(t, f.ask("GET", "/v1/runs/"+run, "")["questions"], "name.1")
		f.do("POST", "/v1/runs/"+run+"/answers", `{"answers":{"name.1":{"action":"accept","content":{"name":"Ana"}}}}`)
		require.Equal(t, "succeeded", f.ask("GET", "/v1/runs/"+run+"?wait=9m", "")["status"])
	})
}
