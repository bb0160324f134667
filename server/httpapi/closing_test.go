package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// withoutRuns lists the routes that need nothing that a closed service no longer has.
var withoutRuns = []string{"listTools", "listDeclarations", "getTool", "watchEvents", "getStats", "getToolStats", "getHistory", "listCalls", "getConnections", "getOpenAPI", "getHealth", "getResourceMetadata", "getMCPResourceMetadata"}

// When the service is closed under a route, the answer is that the server is shutting
// down, not that it is broken or that nothing was found.
func TestClosedUnderRoutes(t *testing.T) {
	echo := zoo()["echo"]
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, r := range httpapi.Routes() {
		t.Run(r.Name, func(t *testing.T) {
			service, err := server.Open(t.Context(), server.Config{
				Folders:  []plugins.Folder{{Path: "zoo", FS: fstest.MapFS{"echo.wasm": &fstest.MapFile{Data: echo.Wasm()}}}},
				CacheDir: plugintest.CacheDir(), DataDir: t.TempDir(), Secrets: secrets(t),
			})
			require.NoError(t, err)
			t.Cleanup(func() { _ = service.Close(gone) })
			api := httpapi.New(service, httpapi.Config{OAuth: &identity.OAuth{Issuer: "https://login.example", Audience: audience}, Token: "s3cret", Approvals: approvals("may approve as well")})
			answer := func(method, path, body string) *httptest.ResponseRecorder {
				w := httptest.NewRecorder()
				api.ServeHTTP(w, newRequest(t, method, path, body, "Authorization", "Bearer s3cret", wire.ApprovalHeader, "may approve as well"))
				return w
			}
			var run, schedule struct {
				ID string `json:"task_id"`
				At string `json:"schedule_id"`
			}
			require.NoError(t, json.Unmarshal(answer("POST", "/v1/runs", `{"tool":"echo"}`).Body.Bytes(), &run))
			require.NoError(t, json.Unmarshal(answer("POST", "/v1/schedules", `{"tool":"echo","cron_expression":"0 0 * * *"}`).Body.Bytes(), &schedule))
			answer("GET", "/v1/runs/"+run.ID+"?wait=9m", "")
			ask := asks[r.Name]
			if ask[0] == "" {
				ask[0] = r.Path
			}
			names := strings.NewReplacer("{run}", run.ID, "{sleeper}", run.ID, "{schedule}", schedule.At, "{tool}", "echo", "{plugin}", "keeper", "{name}", "output.log", "{listener}", run.ID, "{key}", "k", "{secret}", "example")

			if r.Name == "watchEvents" { // a stream ends with the API
				api.Drain()
				require.NoError(t, api.Shutdown(t.Context()))
			}
			require.NoError(t, service.Close(gone)) // whoever mounts the API may do no more than that
			w := answer(r.Method, names.Replace(ask[0]), names.Replace(ask[1]))
			if slices.Contains(withoutRuns, r.Name) {
				require.Equal(t, http.StatusOK, w.Code, w.Body)
				return
			}
			var p wire.Problem
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p), w.Body)
			require.Equal(t, wire.CodeClosing, p.Code, w.Body)
			require.Equal(t, "1", w.Header().Get("Retry-After"))
			require.Contains(t, r.Codes, p.Code)
		})
	}
}
