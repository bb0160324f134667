package sqlite_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/pkg/background/sqlite"
)

// TestFamilyAfterARestart: a parent that is run again after a restart finds the
// child of its first attempt, which was run again too, and stops with it.
func TestFamilyAfterARestart(t *testing.T) {
	dir := t.TempDir()
	ready := make(chan string, 10)
	open := func() (*sqlite.Engine, *background.Manager) {
		store, err := sqlite.Open(t.Context(), dir, sqlite.Config{})
		require.NoError(t, err)
		var m *background.Manager
		made := make(chan struct{})
		m, err = background.New(t.Context(), background.Config{
			Engine: store, Readmit: func(context.Context, engine.Run) error { return nil },
			Executor: func(ctx context.Context, run engine.Run, sink *output.Sink) (background.Outcome, error) {
				<-made
				if run.Tool == "parent" {
					child, err := m.Spawn(ctx, "s", background.SpawnRequest{Tool: "child", IdempotencyKey: "one"})
					if err != nil {
						return background.Outcome{}, err
					}
					ready <- child.ID
				}
				<-ctx.Done()
				return background.Outcome{}, ctx.Err()
			},
		})
		require.NoError(t, err)
		close(made)
		return store, m
	}
	shut := func(store *sqlite.Engine, m *background.Manager) {
		now, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, m.Close(now))
		require.NoError(t, store.Close())
	}

	store, m := open()
	parent, err := m.Spawn(t.Context(), "s", background.SpawnRequest{Tool: "parent"})
	require.NoError(t, err)
	child := <-ready
	shut(store, m)

	store, m = open()
	defer shut(store, m)
	require.Equal(t, child, <-ready, "the second attempt finds the child of the first")
	children, err := m.List(t.Context(), engine.Query{Session: "s", Parent: parent.ID})
	require.NoError(t, err)
	require.Len(t, children, 1)
	require.Equal(t, child, children[0].ID)

	_, err = m.Stop(t.Context(), "s", parent.ID, background.StopRequest{Force: true})
	require.NoError(t, err)
	run, err := m.Get(t.Context(), "s", child)
	require.NoError(t, err)
	require.Equal(t, engine.StatusCanceled, run.Status)
}
