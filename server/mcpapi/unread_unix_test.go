//go:build unix

package mcpapi_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// The process of a client that is gone ends, though a call is still running.
func TestClientIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, zooConfig(server.Config{}))
		client, out, err := os.Pipe()
		require.NoError(t, err)
		defer out.Close()
		began := time.Now()
		time.AfterFunc(5*time.Second, func() { _ = client.Close() })
		require.NoError(t, mcpapi.Run(t.Context(), s, mcpapi.Config{In: strings.NewReader(callOf("forever")), Out: out}))
		require.LessOrEqual(t, time.Since(began), 6*time.Second)
	})
}
