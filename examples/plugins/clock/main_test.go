package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/examples/plugins/internal/readme"
	"github.com/toolhost/toolhost/guest"
	"github.com/toolhost/toolhost/guest/guesttest"
)

func TestPlugin(t *testing.T) { guesttest.Check(t, &plugin) }

func TestREADME(t *testing.T) { readme.Check(t, &plugin) }

func TestNowInOffset(t *testing.T) {
	out := guesttest.Call(&plugin, "now", nowArgs{"+05:30"})
	require.True(t, out.IsSuccess(), out)
	var got nowResult
	require.NoError(t, json.Unmarshal(out.Value, &got))
	parsed, err := time.Parse(time.RFC3339, got.Time)
	require.NoError(t, err)
	require.Equal(t, got.Unix, parsed.Unix())
	require.Equal(t, "+05:30", parsed.Format("-07:00"))
}

// The host does the waiting, so the test is the host and need not wait.
func TestSleep(t *testing.T) {
	var asked string
	h := guesttest.Host{Capabilities: map[string]func(json.RawMessage) (any, error){
		"sleep": func(request json.RawMessage) (any, error) {
			asked = string(request)
			return struct{}{}, nil
		},
	}}
	out := h.Call(&plugin, "sleep", sleepArgs{1.5})
	require.JSONEq(t, `{"slept_seconds":1.5}`, string(out.Value))
	require.JSONEq(t, `{"ms":1500}`, asked)
}

func TestSleepStoppedOrDenied(t *testing.T) {
	stopped := func(json.RawMessage) (any, error) { return nil, &guest.HostError{Code: "canceled"} }
	for name, c := range map[string]struct {
		sleep func(json.RawMessage) (any, error)
		want  string
	}{
		"stopped": {stopped, "canceled"},
		"denied":  {nil, "denied"},
	} {
		t.Run(name, func(t *testing.T) {
			h := guesttest.Host{Capabilities: map[string]func(json.RawMessage) (any, error){"sleep": c.sleep}}
			out := h.Call(&plugin, "sleep", sleepArgs{1})
			require.Equal(t, abi.ToolError, out.Kind)
			require.Contains(t, out.Error, c.want)
		})
	}
}
