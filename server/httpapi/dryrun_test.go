package httpapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/wire"
)

// In a dry run, a request that would start something says what it would start, and starts
// nothing.
func TestDryRunBeginsNothing(t *testing.T) {
	s, err := server.Open(t.Context(), server.Config{Tools: []gotool.Tool{{
		Name: "writes", Description: "For tests.", Hints: abi.Hints{SupportsBackground: true},
		Handler: gotool.Handle(func(context.Context, *gotool.Call, struct{}) (gotool.None, error) { panic("called") }),
	}}})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close(context.Background())) }()
	a := New(s, Config{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})

	for path, body := range map[string]string{
		"/v1/calls":     `{"tool":"writes"}`,
		"/v1/runs":      `{"tool":"writes"}`,
		"/v1/schedules": `{"tool":"writes","cron_expression":"0 3 * * *"}`,
	} {
		r := httptest.NewRequest(http.MethodPost, "http://localhost"+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(wire.DryRunHeader, "true")
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		require.Less(t, w.Code, 300, "%s: %s", path, w.Body)
		require.Empty(t, w.Header().Get("Location"), path)
		require.Contains(t, w.Body.String(), "dry_run", path)
		require.True(t, json.Valid(w.Body.Bytes()))
	}

	runs, err := s.AllSessions().Runs(t.Context(), server.RunQuery{})
	require.NoError(t, err)
	require.Empty(t, runs)
	schedules, err := s.AllSessions().Schedules().List(t.Context())
	require.NoError(t, err)
	require.Empty(t, schedules)
}
