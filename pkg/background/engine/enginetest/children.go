package enginetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// child returns a run of the session s whose parent is the run with the id parent.
func child(id, parent string) engine.Run {
	run := newRun(id, "s")
	run.Parent, run.Depth = parent, 1
	return run
}

func children(t *testing.T, e *store) {
	submit(t, e, "bg_p", "s")
	require.NoError(t, e.Submit(t.Context(), child("bg_a", "bg_p")))
	complete(t, started(t, e, "bg_a"), engine.StatusSucceeded)
	_, err := e.Adopt(t.Context(), child("bg_b", "bg_p"))
	require.NoError(t, err)
	require.NoError(t, e.worker.Submit(t.Context(), child("bg_c", "bg_p"), nil))
	require.NoError(t, e.Submit(t.Context(), child("bg_d", "bg_c")))
	same(t, child("bg_d", "bg_c"), whole(t, e, "bg_d"))

	for _, c := range []struct {
		q    engine.Query
		want string
	}{
		{engine.Query{Parent: "bg_p"}, "bg_c bg_b bg_a"},
		{engine.Query{Parent: "bg_p", Active: true}, "bg_c bg_b"},
		{engine.Query{Parent: "bg_p", Session: "s", Limit: 1}, "bg_c"},
		{engine.Query{Parent: "bg_p", Session: "s", Before: "bg_c"}, "bg_b bg_a"},
		{engine.Query{Parent: "bg_p", Session: "other"}, ""},
		{engine.Query{Parent: "bg_a"}, ""},
	} {
		runs, err := e.List(t.Context(), c.q)
		require.NoError(t, err)
		require.Equal(t, c.want, ids(runs), "%+v", c.q)
	}
}

// childrenRefused: only an active run of the same session can have new children.
func childrenRefused(t *testing.T, e *store) {
	submit(t, e, "bg_other", "other")
	submit(t, e, "bg_ended", "s")
	complete(t, started(t, e, "bg_ended"), engine.StatusSucceeded)
	submit(t, e, "bg_stopping", "s")
	started(t, e, "bg_stopping")
	_, err := e.Cancel(t.Context(), "bg_stopping", engine.Cancellation{At: time.Now()})
	require.NoError(t, err)

	for _, parent := range []string{"bg_unknown", "bg_other", "bg_ended", "bg_stopping", "bg_a"} {
		require.ErrorIs(t, e.Submit(t.Context(), child("bg_a", parent)), engine.ErrParent, parent)
		require.ErrorIs(t, e.worker.Submit(t.Context(), child("bg_a", parent), nil), engine.ErrParent, parent)
		_, err := e.Adopt(t.Context(), child("bg_a", parent))
		require.ErrorIs(t, err, engine.ErrParent, parent)
	}
	_, err = e.Get(t.Context(), "bg_a")
	require.ErrorIs(t, err, engine.ErrNotFound)
	require.NoError(t, e.Submit(t.Context(), newRun("bg_a", "s")), "its permit is back")
}

// childrenLimit: the active children of a run are limited, even if many are
// submitted at once.
func childrenLimit(t *testing.T, e *store) {
	submit(t, e, "bg_p", "s")
	require.NoError(t, e.worker.Submit(t.Context(), child("bg_queued", "bg_p"), nil))
	permits := engine.Permits{Children: 4}
	won := race(16, func(i int) error {
		return e.worker.Submit(t.Context(), child(fmt.Sprintf("bg_%d", i), "bg_p"), &permits)
	})
	require.Equal(t, 3, won)

	err := e.worker.Submit(t.Context(), child("bg_more", "bg_p"), &permits)
	require.ErrorIs(t, err, engine.ErrChildLimit)
	_, err = e.Cancel(t.Context(), "bg_queued", engine.Cancellation{At: time.Now()})
	require.NoError(t, err)
	require.NoError(t, e.worker.Submit(t.Context(), child("bg_more", "bg_p"), &permits))
}
