package mcpapi

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Sessions that never make another request do not add up.
func TestNotifiedIsBounded(t *testing.T) {
	var n shownNotices
	for i := range 2 * maxNotified {
		session := fmt.Sprint(i)
		require.True(t, n.take(session, "run"))
		require.False(t, n.take(session, "run"))
		require.Empty(t, n.sent(session), "the result is not complete")
		n.complete(session, []string{"run"})
		require.Equal(t, []string{"run"}, n.sent(session))
	}
	require.Len(t, n.sessions, maxNotified)
	for i := range 2 * maxNotified {
		n.give(fmt.Sprint(i), []string{"run"})
	}
	require.Empty(t, n.sessions)
}
