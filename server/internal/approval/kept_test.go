package approval

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/dryrun"
	"github.com/toolhost/toolhost/server/wire"
)

// Which later calls a kept approval covers. Any other is asked about again.
func TestKept(t *testing.T) {
	const connected = wire.Keep("connection") // a user's decision for the session, over a connection
	all := []wire.Keep{wire.KeepArguments, wire.KeepSession, connected, wire.KeepAlways}
	type call struct{ session, args, caller string }
	approved := call{alice, `{"n":1}`, ""}
	for name, test := range map[string]struct {
		change func(b *bench)
		call   call
		covers []wire.Keep
	}{
		"the same call":      {nil, approved, all},
		"other arguments":    {nil, call{alice, `{"n":2}`, ""}, all[1:]},
		"another session":    {nil, call{bob, `{"n":1}`, ""}, all[3:]},
		"by another tool":    {nil, call{alice, `{"n":1}`, "research"}, nil},
		"other code":         {func(b *bench) { b.tool = drop("v2", clock) }, approved, nil},
		"unknown code":       {func(b *bench) { b.tool = drop("", clock) }, approved, nil},
		"more grants":        {func(b *bench) { b.tool = drop("v1", plugins.Grant{Clock: true, Random: true}) }, approved, nil},
		"fewer grants":       {func(b *bench) { b.tool = drop("v1", plugins.Grant{}) }, approved, nil},
		"another tool":       {func(b *bench) { b.tool.Name = "other" }, approved, nil},
		"within a day":       {func(*bench) { time.Sleep(keptLife - time.Minute) }, approved, all},
		"after a day":        {func(*bench) { time.Sleep(keptLife) }, approved, all[3:]},
		"another connection": {func(b *bench) { b.Process = "another" }, approved, []wire.Keep{wire.KeepArguments, wire.KeepSession, wire.KeepAlways}},
		"revoked in the session": {func(b *bench) {
			_, err := b.Revoke(b.t.Context(), alice, "drop")
			require.NoError(b.t, err)
		}, approved, all[3:]},
		"revoked for all": {func(b *bench) {
			_, err := b.Revoke(b.t.Context(), "", "drop")
			require.NoError(b.t, err)
		}, approved, all[:3]},
	} {
		t.Run(name, func(t *testing.T) {
			for _, keep := range all {
				synctest.Test(t, func(t *testing.T) {
					b, in := open(t), wire.Decide{Approve: true, Keep: keep}
					if keep == connected {
						in.Keep = wire.KeepSession
					}
					run := b.hold(approved.session, approved.args, approved.caller)
					_, err := b.decide(t.Context(), run.ID, "user", in, keep == connected)
					require.NoError(t, err)

					if test.change != nil {
						test.change(b)
					}
					want := Held
					for _, covers := range test.covers {
						if keep == covers {
							want = Covered
						}
					}
					require.Equal(t, want, b.verdict(test.call.session, test.call.args, test.call.caller), keep)
					b.closes()
					require.NoError(t, b.runs.Close(t.Context()))
				})
			}
		})
	}
}

// An approval that is not to be kept covers no other call.
func TestNotKept(t *testing.T) {
	b := open(t)
	require.NoError(t, b.decideOn(b.hold(alice, `{"n":1}`, ""), wire.Decide{Approve: true}))
	require.NoError(t, b.decideOn(b.hold(alice, `{"n":1}`, ""), wire.Decide{Keep: wire.KeepAlways}))
	require.Equal(t, Held, b.verdict(alice, `{"n":1}`, ""), "once is once, and a refusal is kept for nothing")
}

// Operators see what is kept, and whether it still holds.
func TestListOfKept(t *testing.T) {
	b := open(t)
	require.NoError(t, b.decideOn(b.hold(bob, `{"n":1}`, "research"), wire.Decide{Approve: true, Keep: wire.KeepArguments}))
	require.NoError(t, b.decideOn(b.hold(alice, `{"n":1}`, ""), wire.Decide{Approve: true, Keep: wire.KeepAlways}))
	list, err := b.Kept(t.Context())
	require.NoError(t, err)
	require.Len(t, list.Kept, 2)
	always, narrow := list.Kept[0], list.Kept[1]
	require.Equal(t, wire.KeptApproval{Tool: "drop", By: "operator", At: always.At, InForce: true}, always)
	require.Equal(t, wire.KeptApproval{
		Tool: "drop", Caller: "research", Session: bob, ArgsDigest: digestOf([]byte(`{"n":1}`)), By: "operator", At: narrow.At, ExpiresAt: narrow.ExpiresAt, InForce: true,
	}, narrow)
	require.WithinDuration(t, narrow.At.Add(keptLife), narrow.ExpiresAt, time.Minute)

	b.tool = drop("v2", clock)
	list, err = b.Kept(t.Context())
	require.NoError(t, err)
	require.False(t, list.Kept[0].InForce)

	found, err := b.Revoke(dryrun.With(t.Context()), bob, "drop")
	require.NoError(t, err)
	require.True(t, found)
	found, err = b.Revoke(t.Context(), bob, "drop")
	require.NoError(t, err)
	require.True(t, found, "a dry run removes nothing")
	found, err = b.Revoke(t.Context(), bob, "drop")
	require.NoError(t, err)
	require.False(t, found)
	require.Equal(t, "approval revoked bob drop", b.audited[len(b.audited)-1])
}
