package values

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/server/internal/dryrun"
)

// What a session stores has versions, and no other session sees it.
func TestSessionValues(t *testing.T) {
	e, ctx := memory.New(), t.Context()
	alice, bob := OfSession(e, "alice"), OfSession(e, "bob")
	first, err := alice.Set(ctx, "draft", json.RawMessage(`{"n":1}`), 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, first.Version)
	_, err = alice.Set(ctx, "draft", json.RawMessage(`2`), 0)
	require.ErrorIs(t, err, engine.ErrConflict)
	_, err = bob.Get(ctx, "draft")
	require.ErrorIs(t, err, engine.ErrNotFound)

	found, err := alice.Get(ctx, "draft")
	require.NoError(t, err)
	require.JSONEq(t, `{"n":1}`, string(found.Value))
	all, err := alice.List(ctx)
	require.NoError(t, err)
	require.Len(t, all.Values, 1)
	require.Equal(t, []any{"draft", int64(1), 7}, []any{all.Values[0].Key, all.Values[0].Version, all.Values[0].Bytes})
	require.Empty(t, all.Values[0].Value, "a list has no data")

	deleted, err := alice.Delete(ctx, "draft", engine.AnyVersion)
	require.NoError(t, err)
	require.True(t, deleted)
	deleted, err = alice.Delete(ctx, "draft", engine.AnyVersion)
	require.NoError(t, err)
	require.False(t, deleted)
}

// A dry run makes the checks of a change, and changes nothing.
func TestDryRun(t *testing.T) {
	e, dry := memory.New(), dryrun.With(t.Context())
	v := OfSession(e, "alice")
	_, err := v.Set(t.Context(), "a", json.RawMessage(`1`), 0)
	require.NoError(t, err)

	would, err := v.Set(dry, "a", json.RawMessage(`22`), 1)
	require.NoError(t, err)
	require.Equal(t, []any{"a", int64(1), 2}, []any{would.Key, would.Version, would.Bytes})
	_, err = v.Set(dry, "a", json.RawMessage(`22`), 7)
	require.ErrorIs(t, err, engine.ErrConflict)
	_, err = v.Delete(dry, "a", 7)
	require.ErrorIs(t, err, engine.ErrConflict)
	deleted, err := v.Delete(dry, "a", engine.AnyVersion)
	require.NoError(t, err)
	require.True(t, deleted)
	deleted, err = v.Delete(dry, "b", engine.AnyVersion)
	require.NoError(t, err)
	require.False(t, deleted)

	_, err = Calls{Engine: e}.Session(host.Call{Session: "alice"}).Set(dry, "a", json.RawMessage(`22`), host.AnyVersion, 0)
	require.Equal(t, errDryRun, err)
	_, err = Calls{Engine: e}.Session(host.Call{Session: "alice"}).Delete(dry, "a", host.AnyVersion)
	require.Equal(t, errDryRun, err)
	found, err := v.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, `1`, string(found.Value))
}

// Operators see all stores, page through them and remove from them, which is recorded. A
// dry run neither removes nor records anything.
func TestKV(t *testing.T) {
	e, ctx, dry := memory.New(), t.Context(), dryrun.With(t.Context())
	write := host.KV{Mode: abi.StoreWrite}
	for _, key := range []string{"a1", "a2", "b1"} {
		_, err := Calls{Engine: e}.KV("notes", write, host.Call{}).Set(ctx, key, json.RawMessage(`1`), 0, 0)
		require.NoError(t, err)
	}
	var changes []string
	kv := NewKV(e, func(action, session, id string) { changes = append(changes, action+": "+session+"/"+id) })

	stores, err := kv.List(ctx)
	require.NoError(t, err)
	require.Len(t, stores.Stores, 1)
	require.Equal(t, []any{"notes", "", 3, int64(9)}, []any{stores.Stores[0].Plugin, stores.Stores[0].Session, stores.Stores[0].Keys, stores.Stores[0].Bytes})
	page, err := kv.Keys(ctx, "notes", "", "a", "a1", 10)
	require.NoError(t, err)
	require.Len(t, page.Values, 1)
	require.Equal(t, "a2", page.Values[0].Key)
	_, err = kv.Get(ctx, "notes", "alice", "a1")
	require.ErrorIs(t, err, engine.ErrNotFound, "each session has another store")

	deleted, err := kv.Delete(dry, "notes", "", "a1")
	require.NoError(t, err)
	require.True(t, deleted)
	require.NoError(t, kv.Clear(dry, "notes", ""))
	require.Empty(t, changes)

	for _, want := range []bool{true, false} {
		deleted, err = kv.Delete(ctx, "notes", "", "a1")
		require.NoError(t, err)
		require.Equal(t, want, deleted)
	}
	require.NoError(t, kv.Clear(ctx, "notes", ""))
	require.Equal(t, []string{"kv value removed: /notes a1", "kv store removed: /notes"}, changes)
	_, err = kv.Get(ctx, "notes", "", "b1")
	require.ErrorIs(t, err, engine.ErrNotFound)
}
