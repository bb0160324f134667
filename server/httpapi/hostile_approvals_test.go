package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/wire"
)

// TestHostileApprovals: nobody who can only call tools can decide, whatever credentials
// they have for calls.
func TestHostileApprovals(t *testing.T) {
	const notOverTCP = "decisions on approvals over TCP are disabled: use the server's socket, as toolhost approve does, or set approvals.token"
	const wrong = "invalid token in Toolhost-Approval-Token: send the value of approvals.token"
	const operators = "this is about all sessions, and only for the operator"
	agent := []string{"Authorization", "Bearer s3cret"}
	user := func(t *testing.T, headers ...string) []string { return as(t, "ana", headers...) }

	for name, c := range map[string]struct {
		token   string // that decides over TCP
		method  string
		path    string
		headers func(t *testing.T) []string
		want    string
	}{
		"no token is set":                        {"", "POST", "/v1/approvals/{id}", func(*testing.T) []string { return agent }, notOverTCP},
		"no token is set, and an empty one sent": {"", "POST", "/v1/approvals/{id}", func(*testing.T) []string { return append(agent, wire.ApprovalHeader, "") }, notOverTCP},
		"without the token":                      {"may approve as well", "POST", "/v1/approvals/{id}", func(*testing.T) []string { return agent }, wrong},
		"the agent's token as the token":         {"may approve as well", "POST", "/v1/approvals/{id}", func(*testing.T) []string { return append(agent, wire.ApprovalHeader, "s3cret") }, wrong},
		"the token with a space more":            {"may approve as well", "POST", "/v1/approvals/{id}", func(*testing.T) []string { return append(agent, wire.ApprovalHeader, "may  approve as well") }, wrong},
		"the token in another case":              {"may approve as well", "POST", "/v1/approvals/{id}", func(*testing.T) []string { return append(agent, wire.ApprovalHeader, "May approve as well") }, wrong},
		"a user":                                 {"may approve as well", "POST", "/v1/approvals/{id}", func(t *testing.T) []string { return user(t) }, operators},
		"a user with the token":                  {"may approve as well", "POST", "/v1/approvals/{id}", func(t *testing.T) []string { return user(t, wire.ApprovalHeader, "may approve as well") }, operators},
		"a user lists":                           {"may approve as well", "GET", "/v1/approvals", func(t *testing.T) []string { return user(t) }, operators},
		"a user reads one":                       {"may approve as well", "GET", "/v1/approvals/{id}", func(t *testing.T) []string { return user(t) }, operators},
		"a user listens":                         {"may approve as well", "GET", "/v1/events?approvals=true", func(t *testing.T) []string { return user(t) }, "approvals are reserved for the operator"},
		"a user revokes":                         {"may approve as well", "DELETE", "/v1/kept_approvals/waits", func(t *testing.T) []string { return user(t) }, operators},
		"the agent revokes":                      {"may approve as well", "DELETE", "/v1/kept_approvals/waits", func(*testing.T) []string { return agent }, wrong},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := serve(t, httpapi.Config{Token: "s3cret", Approvals: approvals(c.token), OAuth: startIssuer(t).trust()}, "echo", "waits")
				id := f.ask("POST", "/v1/runs", `{"tool":"waits"}`, agent...)["task_id"].(string)
				body := ""
				if c.method == "POST" {
					body = `{"approve":true}`
				}
				p := f.refused(c.method, strings.ReplaceAll(c.path, "{id}", id), body, c.headers(t)...)
				require.Equal(t, wire.CodeForbidden, p.Code, p.Detail)
				require.Equal(t, c.want, p.Detail)

				run := f.ask("GET", "/v1/runs/"+id, "", agent...)
				require.Equal(t, "approval", run["held"], "it waits as before")
				resp, text := f.overSocket("POST", "/v1/approvals/"+id, `{"approve":true}`)
				require.Equal(t, http.StatusOK, resp.StatusCode, text)
			})
		})
	}
}
