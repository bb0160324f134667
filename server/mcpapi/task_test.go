package mcpapi

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/wire"
)

// A client asks no more for a task in a terminal state: one whose end is not
// stored is not in one.
func TestUnsavedTask(t *testing.T) {
	for _, run := range []wire.Run{
		{Status: wire.StatusSucceeded},
		{Status: wire.StatusCanceled},
		{Status: wire.StatusFailed, Error: &wire.RunError{Kind: wire.KindToolError}},
		{Status: wire.StatusFailed, Error: &wire.RunError{Kind: wire.KindTrap}},
	} {
		require.True(t, statusOf(run).terminal())
		run.Unsaved = true
		require.False(t, statusOf(run).terminal())
		require.Contains(t, statusMessage(run), string(run.Status)+", but that is not stored yet")
	}
}

// A call that waits for a person does not wait for a slot.
func TestHeldTask(t *testing.T) {
	run := wire.Run{Status: wire.StatusQueued}
	require.Equal(t, "waiting for a slot", statusMessage(run))
	run.Held = "approval"
	require.Equal(t, "waiting for approval", statusMessage(run))
}
