package httpapi_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
)

// A user sees the calls of its own sessions, without why they failed and without the
// names of sessions that nobody can guess. The operator sees all.
func TestCallsOfUsers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{OAuth: startIssuer(t).trust()}, "echo", "panics")
		for _, subject := range []string{"ana", "an", "bo"} {
			f.do("POST", "/v1/calls", `{"tool":"panics"}`, as(t, subject)...)
			f.do("POST", "/v1/calls", `{"tool":"echo"}`, as(t, subject, "Toolhost-Session", "")...)
		}
		for _, subject := range []string{"ana", "an", "bo"} {
			require.Len(t, f.ask("GET", "/v1/calls", "", as(t, subject)...)["calls"], 2, subject)
			_, text := f.do("GET", "/v1/calls", "", as(t, subject)...)
			require.NotContains(t, text, subject+"/")
			require.NotContains(t, text, "hunter2")
			require.NotContains(t, text, "~/")
			require.Contains(t, text, `"code":"trap"`)
		}
		require.Len(t, f.ask("GET", "/v1/calls", "", as(t, "eve")...)["calls"], 0)
		_, text := f.overSocket("GET", "/v1/calls", "")
		require.Contains(t, text, `"session":"ana/`)
		require.Contains(t, text, "hunter2")
	})
}
