package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/examples/plugins/internal/readme"
	"github.com/toolhost/toolhost/guest/guesttest"
)

func TestPlugin(t *testing.T) { guesttest.Check(t, &plugin) }

func TestREADME(t *testing.T) { readme.Check(t, &plugin) }

var tea = repository{Owner: "ana", Repo: "tea"}

func TestIssues(t *testing.T) {
	h := guesttest.Host{HTTP: guesttest.Recorded(t, "testdata/issues.json")}
	out := h.Call(&plugin, "issues", issuesArgs{repository: tea, Limit: 2})
	require.True(t, out.IsSuccess(), out.Error)
	require.JSONEq(t, `{"issues":[{"number":7,"title":"Too hot","state":"open","by":"ben","labels":["bug"],"at":"2026-01-02T03:04:05Z","url":"https://github.com/ana/tea/issues/7","body":"It burns."}]}`, string(out.Value))

	out = h.Call(&plugin, "create", createArgs{repository: tea, Title: "Too cold"})
	require.True(t, out.IsSuccess(), out.Error)
	require.Contains(t, string(out.Value), `"number":8`)

	out = h.Call(&plugin, "issues", issuesArgs{repository: repository{"ana", "none"}})
	require.Equal(t, "GitHub answers 404 Not Found: Not Found", out.Error)
}

// TestHostileNames: a name of a repository does not lead to another part of the API.
func TestHostileNames(t *testing.T) {
	h := guesttest.Host{HTTP: guesttest.Play()}
	require.Contains(t, h.Call(&plugin, "issues", issuesArgs{repository: repository{"ana", "../../user"}}).Error, "the arguments do not fit")
	out := h.Call(&plugin, "issues", issuesArgs{repository: repository{"ana", ".."}})
	require.NotEmpty(t, out.Error)
	require.NotContains(t, out.Error, "no exchange is left", "the request was not admitted")
}
