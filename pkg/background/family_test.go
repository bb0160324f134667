package background

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// childOf spawns a run as a child of the given parent.
func childOf(t *testing.T, m *Manager, parent, tool string) string {
	t.Helper()
	s, err := m.Spawn(t.Context(), alice, SpawnRequest{Tool: tool, Parent: parent})
	require.NoError(t, err)
	synctest.Wait()
	return s.ID
}

// TestChild: a run that is spawned with the context of another run is its child,
// whether or not the request names the parent, and so is a call that is parked.
func TestChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m *Manager
		other := newManager(t, Config{})
		seen := make(chan engine.Run, 3)
		m = newManager(t, Config{Executor: func(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
			if run.Tool != "family" {
				return script(ctx, run, sink)
			}
			self, ok := RunOf(ctx)
			require.True(t, ok)
			require.Equal(t, run.ID, self.ID)

			spawned := must(m.Spawn(ctx, alice, SpawnRequest{Tool: "second"}))
			parked := must(m.Run(ctx, alice, RunRequest{SpawnRequest: SpawnRequest{Tool: "call"}, ParkAfter: time.Second, Work: works(2 * time.Second)}))
			seen <- spawned.Run
			seen <- parked.Run
			seen <- must(m.Spawn(ctx, bob, SpawnRequest{Tool: "echo"})).Run
			require.Empty(t, must(other.Spawn(ctx, alice, SpawnRequest{Tool: "echo"})).Parent, "a run of another manager")

			_, err := awaited(ctx, m, alice, []string{spawned.ID, parked.Run.ID}, UntilAll)
			return Outcome{}, err
		}})
		require.Empty(t, must(m.Spawn(t.Context(), alice, SpawnRequest{Tool: "echo"})).Parent)

		parent := spawned(t, m, alice, "family")
		run := wait(t, m, alice, parent)
		require.Equal(t, engine.StatusSucceeded, run.Status)
		require.Equal(t, 2*time.Second, run.Elapsed(time.Now()), "it waited for its children")

		first, second, third := <-seen, <-seen, <-seen
		require.Equal(t, parent, first.Parent)
		require.Equal(t, parent, second.Parent)
		require.Empty(t, third.Parent, "another session")
		found := must(m.List(t.Context(), engine.Query{Session: alice, Parent: parent}))
		require.Len(t, found, 2)
		require.Equal(t, 1, found[0].Depth)
	})
}

func TestChildIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{PerSession: 100, PerHost: 100})
		ended := spawned(t, m, alice, "echo")
		theirs := spawned(t, m, bob, "sleep")
		spawn := func(parent, key string) (SpawnResult, error) {
			return m.Spawn(t.Context(), alice, SpawnRequest{Tool: "sleep", Parent: parent, IdempotencyKey: key})
		}

		_, err := spawn(ended, "")
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, "parent: it has ended")
		_, err = spawn(theirs, "")
		require.ErrorIs(t, err, engine.ErrNotFound)
		_, unknown := spawn("bg_unknown", "")
		require.ErrorIs(t, unknown, engine.ErrNotFound)

		parent, depth := spawned(t, m, alice, "sleep"), 0
		for id := parent; err != nil && depth < 100; depth++ {
			s, refused := spawn(id, "")
			if id = s.ID; refused != nil {
				err = refused
				break
			}
		}
		require.ErrorIs(t, err, ErrDepthLimit)
		require.Equal(t, MaxDepth, depth)

		kept := must(spawn(parent, "key"))
		children := 2
		for ; ; children++ {
			if _, err = spawn(parent, ""); err != nil {
				break
			}
		}
		require.ErrorIs(t, err, engine.ErrChildLimit)
		require.Equal(t, MaxChildren, children)

		must(m.Stop(t.Context(), alice, parent, StopRequest{}))
		again := must(spawn(parent, "key"))
		require.True(t, again.Reused, "a repeated request has the answer of the first")
		require.Equal(t, kept.ID, again.ID)
		must(m.Stop(t.Context(), bob, theirs, StopRequest{}))
	})
}

func TestStopReachesChildren(t *testing.T) {
	for _, c := range []struct {
		name  string
		tool  string // of the parent
		req   StopRequest
		took  time.Duration
		state engine.Status // of the children afterwards
	}{
		{"sleeping", "sleep", StopRequest{Reason: "not needed"}, 5 * time.Second, engine.StatusCanceled},
		{"by force", "deaf", StopRequest{Force: true, Reason: "not needed"}, 0, engine.StatusCanceled},
		{"ended before", "second", StopRequest{Reason: "not needed"}, 5 * time.Second, engine.StatusCanceled},
		{"alone", "sleep", StopRequest{Alone: true}, 0, engine.StatusRunning},
	} {
		bubble(t, c.name, func(t *testing.T) {
			m := newManager(t, Config{Grace: 5 * time.Second, PerSession: 100})
			parent := spawned(t, m, alice, c.tool)
			child := childOf(t, m, parent, "deaf")
			grandchild := childOf(t, m, child, "sleep")
			bystander := spawned(t, m, alice, "sleep")
			time.Sleep(2 * time.Second)

			began := time.Now()
			must(m.Stop(t.Context(), alice, parent, c.req))
			require.Equal(t, c.took, time.Since(began), "it waits for the children too")
			for id, above := range map[string]string{child: parent, grandchild: child} {
				run := must(m.Get(t.Context(), alice, id))
				require.Equal(t, c.state, run.Status, id)
				if c.state == engine.StatusCanceled {
					require.Equal(t, "parent", run.Cancel.By)
					require.Contains(t, run.Cancel.Reason, "its parent "+above+" was stopped: ")
					require.Contains(t, run.Cancel.Reason, "not needed")
				}
			}
			require.Equal(t, engine.StatusRunning, status(t, m, alice, bystander))
			must(m.Stop(t.Context(), alice, bystander, StopRequest{}))
			must(m.Stop(t.Context(), alice, parent, StopRequest{Force: true}))
		})
	}
}

// TestStopRacesANewChild: whether a child is stored before or after its parent is
// stopped, no child is left running.
func TestStopRacesANewChild(t *testing.T) {
	for i := range 50 {
		bubble(t, fmt.Sprint(i), func(t *testing.T) {
			m := newManager(t, Config{PerSession: 100})
			parent := spawned(t, m, alice, "sleep")
			stopped := make(chan struct{})
			for range 4 {
				go func() { _, _ = m.Spawn(t.Context(), alice, SpawnRequest{Tool: "sleep", Parent: parent}) }()
			}
			go func() {
				defer close(stopped)
				_, err := m.Stop(t.Context(), alice, parent, StopRequest{})
				require.NoError(t, err)
			}()
			<-stopped
			synctest.Wait()
			require.Empty(t, active(t, m, alice))
		})
	}
}

// TestRecoveryStopsChildren: if a process dies after it stopped a parent and before it
// stopped the children, the next process stops them.
func TestRecoveryStopsChildren(t *testing.T) {
	for name, alone := range map[string]bool{"with the children": false, "alone": true} {
		bubble(t, name, func(t *testing.T) {
			p := newPast(t)
			parent := p.running(engine.Run{Tool: "echo"}, 1)
			children := []string{
				p.running(engine.Run{Tool: "echo", Parent: parent, Depth: 1}, 1),
				p.queued(engine.Run{Tool: "echo", Parent: parent, Depth: 1}),
			}
			c := engine.Cancellation{At: time.Now(), By: "session", Reason: "not needed", Alone: alone}
			must(p.engine.Cancel(t.Context(), parent, c, engine.End{}))

			m := newManager(t, Config{Engine: p.crashed(), Readmit: yes, Logger: logTo(new(testlog.Buffer))})
			require.Equal(t, engine.StatusCanceled, wait(t, m, alice, parent).Status)
			for _, id := range children {
				run := wait(t, m, alice, id)
				if alone {
					require.Equal(t, engine.StatusSucceeded, run.Status)
					continue
				}
				require.Equal(t, engine.StatusCanceled, run.Status)
				require.Equal(t, "its parent "+parent+" was stopped: not needed", run.Cancel.Reason)
			}
		})
	}
}

// TestEndOfASessionStopsChildren: when a session ends, the children of its parked calls
// are stopped together with the calls.
func TestEndOfASessionStopsChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{})
		parked := call1(t, m, alice, RunRequest{ParkAfter: time.Second, Work: works(time.Hour)})
		child := childOf(t, m, parked.Run.ID, "sleep")
		require.NoError(t, m.EndSession(t.Context(), alice))
		require.Equal(t, engine.StatusCanceled, status(t, m, alice, child))
	})
}
