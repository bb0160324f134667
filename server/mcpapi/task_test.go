package mcpapi

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background"
)

// A client asks no more for a task in a terminal state: one whose end is not
// stored is not in one.
func TestUnsavedTask(t *testing.T) {
	for _, run := range []background.Run{
		{Status: background.StatusSucceeded},
		{Status: background.StatusCanceled},
		{Status: background.StatusFailed, End: background.End{Error: &background.RunError{Kind: background.KindToolError}}},
		{Status: background.StatusFailed, End: background.End{Error: &background.RunError{Kind: background.KindTrap}}},
	} {
		require.True(t, statusOf(run).terminal())
		run.Unsaved = true
		require.False(t, statusOf(run).terminal())
		require.Contains(t, statusMessage(run), string(run.Status)+", and that is not stored yet")
	}
}
