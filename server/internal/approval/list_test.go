package approval

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// Who decides sees the call, its arguments, and what it may use.
func TestShow(t *testing.T) {
	b := open(t)
	b.tool.Description = "Drops a table."
	run := b.hold(alice, secretArgs, "research")
	shown, err := b.Show(t.Context(), run.ID)
	require.NoError(t, err)
	want := wire.WaitingCall{
		TaskID: run.ID, Session: alice, Tool: "drop", Description: "Drops a table.", ToolVersion: "v1", By: "research", Caller: "research",
		Args: `{"n":1}`, ArgsBytes: 7, ArgsDigest: digestOf([]byte(`{"n":1}`)), ArgsIncomplete: true,
		Grants: []string{"clock"}, Fingerprint: fingerprint(b.tool), AskedAt: run.CreatedAt, ExpiresAt: run.CreatedAt.Add(DefaultWait),
	}
	require.Equal(t, want, shown)

	b.tool = drop("v1", plugins.Grant{})
	shown, err = b.Show(t.Context(), run.ID)
	require.NoError(t, err)
	require.True(t, shown.Changed)
	b.tool = nil
	shown, err = b.Show(t.Context(), run.ID)
	require.NoError(t, err)
	require.True(t, shown.Changed)

	require.NoError(t, b.decideOn(run, wire.Decide{}))
	_, err = b.Show(t.Context(), run.ID)
	require.Equal(t, wire.CodeConflict, reason.Of(err).Code, "it was decided on")
}

// A list of calls that wait is read by pages, also while they are decided on.
func TestPages(t *testing.T) {
	b := open(t)
	var runs []engine.Run
	var ids []string
	for range 5 {
		runs = append(runs, b.hold(alice, `{"n":1}`, ""))
		ids = append(ids, runs[len(runs)-1].ID)
	}
	page := func(after string) (found []string, next string) {
		list, err := b.List(t.Context(), after, 2)
		require.NoError(t, err)
		for _, w := range list.Approvals {
			found = append(found, w.TaskID)
		}
		return found, list.Next
	}

	first, next := page("")
	require.Equal(t, ids[:2], first)
	require.Equal(t, ids[1], next)
	second, next := page(next)
	require.Equal(t, ids[2:4], second)
	require.NoError(t, b.decideOn(runs[3], wire.Decide{}))
	third, _ := page(next)
	require.Contains(t, third, ids[4], "the call before was decided on meanwhile")
	_, err := b.List(t.Context(), "bg_none", 2)
	require.ErrorIs(t, err, engine.ErrNotFound)

	whole := `{"n":1,"text":"` + strings.Repeat("x", 2*maxListedArgs) + `"}`
	long := b.hold(bob, whole, "")
	list, err := b.List(t.Context(), ids[4], 0)
	require.NoError(t, err)
	require.Len(t, list.Approvals, 1)
	require.True(t, list.Approvals[0].ArgsCut)
	require.Equal(t, len(whole), list.Approvals[0].ArgsBytes)
	one, err := b.Show(t.Context(), long.ID)
	require.NoError(t, err)
	require.Equal(t, whole, one.Args)
	require.False(t, one.ArgsCut)
}

// A watcher sees what begins to wait, and what becomes of it, of all sessions.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t)
		b.rules.Policy.Wait = time.Hour
		var expiring sync.WaitGroup
		expiring.Go(func() { b.Expire(b.Serving) })
		before := b.hold(alice, `{"n":1}`, "")
		ctx, cancel := context.WithCancel(t.Context())
		events, err := b.Watch(ctx)
		require.NoError(t, err)
		next := func() string {
			e := <-events
			return string(e.Kind) + " " + e.Run.TaskID
		}

		after := b.hold(bob, `{"n":1}`, "")
		require.Equal(t, "held "+after.ID, next())
		require.NoError(t, b.decideOn(before, wire.Decide{Approve: true}))
		require.Equal(t, "queued "+before.ID, next())
		require.NoError(t, b.decideOn(after, wire.Decide{}))
		require.Equal(t, "ended "+after.ID, next(), "the run that was approved is not in it any more")
		late := b.hold(bob, `{"n":1}`, "")
		require.Equal(t, "held "+late.ID, next())
		require.Equal(t, "ended "+late.ID, next(), "nobody decided in time")

		cancel()
		_, ok := <-events
		require.False(t, ok)
		b.closes()
		expiring.Wait()
		require.NoError(t, b.runs.Close(context.WithoutCancel(t.Context())))
	})
}
