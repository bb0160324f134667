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
	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/server/wire"
)

// roundTrip answers requests without a server.
type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// While a run waits for its user, a server answers waits at once. The command
// tells the person, once, and asks again after a while.
func TestWaitForUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id, began, asked := "bg_"+strings.Repeat("a", 26), time.Now(), 0
		transport := roundTrip(func(r *http.Request) (*http.Response, error) {
			asked++
			run := wire.Run{TaskID: id, Status: wire.StatusRunning}
			if time.Since(began) < 10*time.Second {
				run.Questions = map[string]abi.Question{"name.1": {Message: "Who are\nyou?"}}
			} else {
				run.Status, run.Done = wire.StatusSucceeded, true
			}
			body, err := json.Marshal(wire.Runs{Runs: []wire.Run{run}})
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, err
		})
		c, err := client.New("localhost:7070", client.Options{Transport: transport})
		require.NoError(t, err)
		said := new(testlog.Buffer)
		found, err := (&remote{ui: &ui{err: said}, client: c}).waitFor(t.Context(), []string{id}, newBar(said), nil)
		require.NoError(t, err)
		require.True(t, found.Runs[0].Done)
		require.Equal(t, "toolhost: "+id+" waits for its user: Who are you?\n", said.String())
		require.Equal(t, 11, asked)
	})
}

// Clients take the URL that serve prints, also with a zone.
func TestAddressWithZone(t *testing.T) {
	transport := roundTrip(func(r *http.Request) (*http.Response, error) {
		require.Equal(t, "[fe80::1%eth0]:7070", r.URL.Host)
		return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, nil
	})
	c, err := client.New(urlOf("[fe80::1%eth0]:7070"), client.Options{Transport: transport})
	require.NoError(t, err)
	require.NoError(t, c.Do(t.Context(), "GET", "/v1/tools", nil, nil))
}
