package enginetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// held: held runs cannot be claimed until they are released, and can be canceled
// before that.
func held(t *testing.T, e *store) {
	hold := func(id string) {
		run := newRun(id, "s")
		run.Held = "approval"
		require.NoError(t, e.worker.Submit(t.Context(), run, nil))
	}
	claimed := func() (ids []string) {
		runs, err := e.worker.Claim(t.Context(), 10, engine.Permits{})
		require.NoError(t, err)
		for _, r := range runs {
			require.Empty(t, r.Held)
			ids = append(ids, r.ID)
		}
		return ids
	}
	hold("bg_a")
	hold("bg_b")
	hold("bg_c")
	require.NoError(t, e.worker.Submit(t.Context(), newRun("bg_d", "s"), nil))
	require.Equal(t, []string{"bg_d"}, claimed())

	events := e.Watch(t.Context(), "s")
	run, err := e.Release(t.Context(), "bg_b")
	require.NoError(t, err)
	require.Empty(t, run.Held)
	require.Equal(t, engine.StatusQueued, run.Status)
	event := <-events
	require.Equal(t, engine.EventQueued, event.Kind)
	require.Equal(t, "bg_b", event.Run.ID)
	require.Equal(t, []string{"bg_b"}, claimed())
	stored, err := e.Get(t.Context(), "bg_b")
	require.NoError(t, err)
	require.Empty(t, stored.Held)
	stored, err = e.Get(t.Context(), "bg_a")
	require.NoError(t, err)
	require.Equal(t, "approval", stored.Held)

	_, err = e.Engine.Cancel(t.Context(), "bg_c", engine.Cancellation{By: "operator"}, engine.End{})
	require.NoError(t, err)
	_, err = e.Release(t.Context(), "bg_c")
	require.ErrorIs(t, err, engine.ErrConflict, "too late")
	_, err = e.Release(t.Context(), "bg_b")
	require.ErrorIs(t, err, engine.ErrConflict, "again")

	refusal := engine.Cancellation{By: "operator", Held: true}
	_, err = e.Engine.Cancel(t.Context(), "bg_b", refusal, engine.End{})
	require.ErrorIs(t, err, engine.ErrConflict, "it was released")
	_, err = e.Engine.Cancel(t.Context(), "bg_d", refusal, engine.End{})
	require.ErrorIs(t, err, engine.ErrConflict, "it was never held")
	stored, err = e.Get(t.Context(), "bg_b")
	require.NoError(t, err)
	require.Nil(t, stored.Cancel)
	run, err = e.Engine.Cancel(t.Context(), "bg_a", refusal, engine.End{})
	require.NoError(t, err)
	require.Equal(t, engine.StatusCanceled, run.Status)
	_, err = e.Engine.Cancel(t.Context(), "bg_a", refusal, engine.End{})
	require.ErrorIs(t, err, engine.ErrConflict, "again")
	_, err = e.Release(t.Context(), "bg_none")
	require.ErrorIs(t, err, engine.ErrNotFound)
}
