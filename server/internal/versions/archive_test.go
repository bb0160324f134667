package versions

import (
	"bytes"
	"context"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
)

// newArchive is an archive that one host writes to, in an engine of its own.
func newArchive(t *testing.T) archive {
	t.Helper()
	e := memory.New()
	worker, err := e.Join(t.Context(), engine.WorkerInfo{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, worker.Leave(context.Background())) })
	return archive{e}
}

func (a archive) all(t *testing.T, digest string) []engine.Value {
	t.Helper()
	all, err := a.values.Values(t.Context(), scopeOf(digest), "", 0, false)
	require.NoError(t, err)
	return all
}

func contentOf(data []byte) func() ([]byte, error) {
	return func() ([]byte, error) { return data, nil }
}

func needs(digests ...string) func(context.Context) (map[string]bool, error) {
	needed := map[string]bool{}
	for _, digest := range digests {
		needed[digest] = true
	}
	return func(context.Context) (map[string]bool, error) { return needed, nil }
}

// TestArchive: a file is stored once, and whole.
func TestArchive(t *testing.T) {
	a, ctx := newArchive(t), t.Context()
	large := make([]byte, 2*pieceSize+10)
	large[2*pieceSize] = 7

	made := 0
	for range 2 {
		require.NoError(t, a.put(ctx, "digest", "digest.wasm", func() ([]byte, error) { made++; return large, nil }))
	}
	require.Equal(t, 1, made)
	require.NoError(t, a.put(ctx, "digest", "empty.image", contentOf(nil)))
	names, err := a.list(ctx, "digest")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"digest.wasm", "empty.image"}, names)
	require.Len(t, a.all(t, "digest"), 5)

	data, err := a.get(ctx, "digest", "digest.wasm")
	require.NoError(t, err)
	require.Equal(t, large, data)
	_, err = a.get(ctx, "digest", "other.wasm")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestArchiveNames: a name that another host has written leads to no other folder.
func TestArchiveNames(t *testing.T) {
	a := newArchive(t)
	for _, name := range []string{"../evil.wasm", "/etc/passwd", "a/b", "..", "good.image"} {
		require.NoError(t, a.put(t.Context(), "digest", name, contentOf([]byte("x"))))
	}
	names, err := a.list(t.Context(), "digest")
	require.NoError(t, err)
	require.Equal(t, []string{"good.image"}, names)
}

// TestArchiveDamage: a file whose pieces were changed or removed is not used.
func TestArchiveDamage(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, a archive, piece engine.Value){
		"changed": func(t *testing.T, a archive, piece engine.Value) {
			piece.Data, piece.Version = []byte("other"), engine.AnyVersion
			_, err := a.values.PutValue(t.Context(), scopeOf("digest"), piece, engine.ValueLimit{})
			require.NoError(t, err)
		},
		"removed": func(t *testing.T, a archive, piece engine.Value) {
			require.NoError(t, a.values.DeleteValue(t.Context(), scopeOf("digest"), piece.Key, engine.AnyVersion))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArchive(t)
			require.NoError(t, a.put(t.Context(), "digest", "digest.wasm", contentOf([]byte("content"))))
			for _, v := range a.all(t, "digest") {
				if isPiece(v) {
					damage(t, a, v)
				}
			}
			data, err := a.get(t.Context(), "digest", "digest.wasm")
			require.Error(t, err)
			require.Empty(t, data)
		})
	}
}

// TestArchivePrune: a version goes once no run needs it and no host has used it for a while.
func TestArchivePrune(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, ctx := newArchive(t), t.Context()
		put := func(digest string) {
			require.NoError(t, a.put(ctx, digest, digest+".wasm", contentOf(bytes.Repeat([]byte(digest), 10))))
		}
		put("needed")
		put("used")
		put("old")
		require.NoError(t, a.prune(ctx, needs("needed")))
		require.Len(t, a.all(t, "old"), 2, "it is too new")

		time.Sleep(freshFor)
		put("used")
		time.Sleep(freshFor)
		require.NoError(t, a.prune(ctx, needs("needed")))
		require.Empty(t, a.all(t, "old"))
		require.Len(t, a.all(t, "used"), 2)
		require.Len(t, a.all(t, "needed"), 2)

		time.Sleep(freshFor)
		require.NoError(t, a.prune(ctx, needs()))
		require.Empty(t, a.all(t, "used"))
		require.Empty(t, a.all(t, "needed"))
	})
}

// TestArchiveInUse: a version that another host uses while it is removed stays whole.
func TestArchiveInUse(t *testing.T) {
	a, ctx := newArchive(t), t.Context()
	require.NoError(t, a.put(ctx, "digest", "digest.wasm", contentOf([]byte("content"))))
	read := a.all(t, "digest")
	found, err := a.values.Value(ctx, scopeOf("digest"), "digest.wasm")
	require.NoError(t, err)
	_, err = a.values.PutValue(ctx, scopeOf("digest"), engine.Value{Key: found.Key, Data: found.Data, Version: engine.AnyVersion}, engine.ValueLimit{})
	require.NoError(t, err)

	require.NoError(t, a.remove(ctx, scopeOf("digest"), read))
	data, err := a.get(ctx, "digest", "digest.wasm")
	require.NoError(t, err)
	require.Equal(t, "content", string(data))

	require.NoError(t, a.remove(ctx, scopeOf("digest"), a.all(t, "digest")))
	require.Empty(t, a.all(t, "digest"))
}
