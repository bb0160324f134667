package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/wire"
)

// TestDeferredTools: a deferred tool is not in the list for models, and can be found,
// shown and called.
func TestDeferredTools(t *testing.T) {
	service, err := server.Open(t.Context(), server.Config{
		Tools: []gotool.Tool{{
			Name: "order_status", Description: "Where an order is.",
			Handler: gotool.Handle(func(_ context.Context, _ *gotool.Call, in struct {
				Order string `json:"order"`
			}) (string, error) {
				return in.Order + " is on its way", nil
			}),
		}},
		Listing: map[string]server.Listing{"*": server.ListBySearch},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, service.Close(context.Background())) })
	api := httpapi.New(service, httpapi.Config{})
	ask := func(method, path, body string, to any) {
		w := httptest.NewRecorder()
		api.ServeHTTP(w, newRequest(t, method, path, body))
		require.Equal(t, 200, w.Code, w.Body)
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), to))
	}
	names := func(path string) (names []string) {
		var all wire.Tools
		ask("GET", path, "", &all)
		for _, d := range all.Tools {
			names = append(names, d.Name)
			require.Equal(t, d.Name == "order_status", d.Deferred)
		}
		return names
	}

	require.Equal(t, []string{server.ToolsSearch}, names("/v1/tools"))
	require.Equal(t, []string{"order_status", server.ToolsSearch}, names("/v1/tools?all=true"))

	var one wire.Definition
	ask("GET", "/v1/tools/order_status", "", &one)
	require.True(t, one.Deferred)
	var found wire.Declarations
	ask("GET", "/v1/declarations?query=orders", "", &found)
	require.Equal(t, []wire.Declaration{{Name: "order_status", Declaration: "order_status(args: { order: string }): Promise<string>", Description: "Where an order is."}}, found.Tools)
	var result struct{ Value string }
	ask("POST", "/v1/calls", `{"tool":"order_status","args":{"order":"7"}}`, &result)
	require.Equal(t, "7 is on its way", result.Value)
}
