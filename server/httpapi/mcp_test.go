package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// Another protocol is behind the same guards, and sees the session.
func TestMounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen []string
		other := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			session := identity.FromContext(r.Context()).Session
			seen = append(seen, session)
			w.WriteHeader(http.StatusTeapot)
		})
		f := serve(t, httpapi.Config{MCP: other, Token: "secret"}, "echo")
		token := []string{"Authorization", "Bearer secret"}
		for _, c := range []struct {
			headers []string
			status  int
		}{
			{nil, http.StatusUnauthorized},
			{append(token, "Origin", "https://evil.example"), http.StatusForbidden},
			{append(token, wire.SessionHeader, "a b"), http.StatusBadRequest},
			{append(token, wire.SessionHeader, strings.Repeat("a", 129)), http.StatusBadRequest},
			{append(token, wire.SessionHeader, ""), http.StatusTeapot},
			{append(token, wire.SessionHeader, "ana"), http.StatusTeapot},
		} {
			resp, body := f.do("POST", "/mcp", `{}`, c.headers...)
			require.Equal(t, c.status, resp.StatusCode, body)
		}
		resp, body := f.do("POST", "/mcp/", `{}`, append(token, wire.SessionHeader, "bob")...)
		require.Equal(t, http.StatusTeapot, resp.StatusCode, body)
		resp, _ = f.do("POST", "/mcp//", `{}`, token...)
		require.Equal(t, http.StatusNotFound, resp.StatusCode)
		require.Len(t, seen, 3)
		require.Regexp(t, `^~/[a-z2-7]{26}$`, seen[0])
		require.Equal(t, "ana", seen[1])
	})
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "echo")
		for _, path := range []string{"/mcp", "/mcp/"} {
			resp, _ := f.do("POST", path, `{}`)
			require.Equal(t, http.StatusNotFound, resp.StatusCode)
		}
	})
}
