package mcpapi_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server"
)

// The resource of limits has the usual ones, and the tools that have others.
func TestLimitsResource(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{Limits: server.Limits{Output: 4096}})
		_, m := e.ask("ana", "{}", "resources/list", "")
		require.Equal(t, "toolhost://limits", m.Result["resources"].([]any)[0].(map[string]any)["uri"], "%v", m)
		_, m = e.ask("ana", "{}", "resources/read", `,"uri":"toolhost://limits"`)
		require.JSONEq(t, `{"usual":{"timeout_seconds":120,"background_seconds":300,"memory_bytes":67108864,"output_bytes":4096,"args_bytes":8388608}}`,
			m.Result["contents"].([]any)[0].(map[string]any)["text"].(string), "%v", host.DefaultMemory)
	})
}
