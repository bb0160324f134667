package plugins

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
)

// TestCompileAll: all plugins are compiled once, and their calls need no file
// any more.
func TestCompileAll(t *testing.T) {
	files := fstest.MapFS{}
	for _, name := range []string{"a", "b", "c"} {
		files[name+".wasm"] = &fstest.MapFile{Data: sealed(named(name)), Mode: 0o644}
	}
	r := openWith(t, newHost(t), Config{Folders: []Folder{{Path: "plugins", FS: files}}})
	var seen []string
	progress := func(done, total int, file string, err error) {
		seen = append(seen, file)
		require.Equal(t, len(seen), done)
		require.Equal(t, 3, total)
		require.NoError(t, err)
	}
	require.NoError(t, r.Compile(t.Context(), progress))
	require.ElementsMatch(t, []string{"plugins/a.wasm", "plugins/b.wasm", "plugins/c.wasm"}, seen)
	for name := range files {
		delete(files, name)
	}
	for _, tool := range r.Tools() {
		_, err := tool.Call(t.Context(), host.Call{})
		require.NoError(t, err)
	}
}

// TestCompileSaysWhatFailed, and compiles the others.
func TestCompileSaysWhatFailed(t *testing.T) {
	files := fstest.MapFS{
		"a.wasm": {Data: sealed(named("a")), Mode: 0o644},
		"b.wasm": {Data: sealed(named("b")), Mode: 0o644},
	}
	r := openWith(t, newHost(t), Config{Folders: []Folder{{Path: "plugins", FS: files}}})
	delete(files, "a.wasm")
	failed := 0
	err := r.Compile(t.Context(), func(_, _ int, _ string, err error) {
		if err != nil {
			failed++
		}
	})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "plugins/a.wasm")
	require.Equal(t, 1, failed)

	gone := errors.New("the operator went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	require.ErrorIs(t, r.Compile(ctx, nil), gone)
}
