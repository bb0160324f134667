package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/server/httpapi"
)

// roundTrip answers requests without a server.
type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// While a run waits for its user, a server answers waits at once. The command
// tells the person, once, and asks again after a while.
func TestWaitForUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id, began, asked := "bg_"+strings.Repeat("a", 26), time.Now(), 0
		c := &client{base: "http://localhost", where: "x", http: http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			asked++
			run := httpapi.Run{TaskID: id, Status: "running"}
			if time.Since(began) < 10*time.Second {
				run.Questions = map[string]abi.Question{"name.1": {Message: "Who are\nyou?"}}
			} else {
				run.Status, run.Done = "succeeded", true
			}
			body, err := json.Marshal(httpapi.Runs{Runs: []httpapi.Run{run}})
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, err
		})}}
		said := new(testlog.Buffer)
		found, err := (&app{ui: ui{err: said}}).waitFor(t.Context(), c, []string{id})
		require.NoError(t, err)
		require.True(t, found.Runs[0].Done)
		require.Equal(t, "toolhost: "+id+" waits for its user: Who are you?\n", said.String())
		require.Equal(t, 11, asked)
	})
}

// The URL that serve says is one that clients take, with a zone too.
func TestAddressWithZone(t *testing.T) {
	c, err := newClient(urlOf("[fe80::1%eth0]:7070"), "", "", "")
	require.NoError(t, err)
	_, err = c.request(t.Context(), "GET", "/v1/tools", nil)
	require.NoError(t, err)
}
