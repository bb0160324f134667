package mcpapi

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
)

// The server waits for a user who has agreed but does not set the secret as long as the client
// waits for the call.
func TestConnectGivesUp(t *testing.T) {
	for name, patience := range map[string]time.Duration{"without progress": silentLimit, "with progress": connectLimit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := secretDigest("toolhost/secret/example")
				k := &asker{who: caller{modern: true, opens: true}, patience: patience, given: map[string][]abi.Answer{asked: {{Action: abi.AnswerAccept}}}}
				began := time.Now()
				err := k.connector()(t.Context(), server.SecretNeed{Name: "example", URL: "https://tools.example/secret/A", Set: make(chan struct{})})
				require.ErrorIs(t, err, server.ErrNotConnected)
				require.Equal(t, patience, time.Since(began), "in the time of the bubble")
			})
		})
	}
	require.Nil(t, (&asker{who: caller{elicits: true}}).connector(), "a client that cannot open pages")
}
