package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The operator's maximum for background runs holds where it is more than the
// default one, too.
func TestMaxBackground(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{MaxLimits: Limits{Background: 2 * time.Hour}}, "sleeper")
		answer := s.agent(alice, SpawnBackground, `{"tool":"sleeper","args":{},"timeout_seconds":7200}`)
		run, err := s.Session(alice).Run(t.Context(), answer["task_id"].(string))
		require.NoError(t, err)
		require.EqualValues(t, 7200, run.DeadlineSeconds)
		require.Equal(t, "timeout_seconds: must be between 1 and 7200",
			s.refused(alice, SpawnBackground, `{"tool":"sleeper","args":{},"timeout_seconds":7201}`))
	})
	bubble(t, func(t *testing.T) {
		s := open(t, Config{MaxLimits: Limits{Background: time.Minute}}, "sleeper")
		run, err := s.Session(alice).Run(t.Context(), s.spawn(alice, "sleeper", `{}`))
		require.NoError(t, err)
		require.EqualValues(t, 60, run.DeadlineSeconds)
	})
}
