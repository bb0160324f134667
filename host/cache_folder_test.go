package host_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
)

// TestCacheFolderCleanedUp: somebody removes the whole folder while a host uses
// it.
func TestCacheFolderCleanedUp(t *testing.T) {
	for _, folder := range []string{"code", "staging", "."} {
		t.Run(folder, func(t *testing.T) {
			dir := t.TempDir()
			h := cachedHost(t, dir, 0)
			compile(t, h, guest{invoke: i32(1)}.wasm())
			require.NoError(t, os.RemoveAll(filepath.Join(dir, folder)))
			callEcho(t, h)
		})
	}
}

// TestCacheFolderUnusable: a folder that cannot be used costs time only, and is
// logged.
func TestCacheFolderUnusable(t *testing.T) {
	var log strings.Builder
	open := func(t *testing.T, dir string) *host.Host {
		log.Reset()
		h, err := host.New(context.Background(), host.Config{CacheDir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
		return h
	}
	t.Run("a link to nowhere", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "link")
		require.NoError(t, os.Symlink("nowhere", dir))
		h := open(t, dir)
		callEcho(t, h)
		require.False(t, h.KeepsCode())
		require.Contains(t, log.String(), "compiled code is not kept")
	})
	t.Run("no folder", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		for _, dir := range []string{file, filepath.Join(file, "below")} {
			_, err := host.New(context.Background(), host.Config{CacheDir: dir})
			require.ErrorContains(t, err, "compile cache: ")
			require.ErrorContains(t, err, "not a directory")
		}
	})
	t.Run("what is there can be read only", func(t *testing.T) {
		dir := t.TempDir()
		callEcho(t, cachedHost(t, dir, 0))
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "staging")))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "staging"), nil, 0o600))
		t.Setenv("TMPDIR", t.TempDir())
		h := open(t, dir)
		require.Contains(t, log.String(), "compiled code is only read")
		callEcho(t, h)
		require.True(t, found(t, h, echo.wasm()))
		require.False(t, found(t, h, guest{invoke: i32(1)}.wasm()))
		require.Len(t, codes(t, dir), 1)
	})
}

// TestCacheFolderUnsafe: code that others could have put there is not run.
func TestCacheFolderUnsafe(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(dir, code string) error
		refuse bool
	}{
		{"as it is made", func(dir, code string) error { return nil }, false},
		{"others read", func(dir, code string) error { return os.Chmod(code, 0o755) }, false},
		{"others write to the entries", func(dir, code string) error { return os.Chmod(code, 0o722) }, true},
		{"a group writes to the entries", func(dir, code string) error { return os.Chmod(code, 0o770) }, true},
		{"others write to the folder above", func(dir, code string) error { return os.Chmod(dir, 0o777) }, true},
		{"others write to the folder above, which is sticky", func(dir, code string) error { return os.Chmod(dir, 0o777|os.ModeSticky) }, true},
		{"sticky is not enough", func(dir, code string) error { return os.Chmod(code, 0o777|os.ModeSticky) }, true},
		{"others write to the staging directories", func(dir, code string) error { return os.Chmod(filepath.Join(dir, "staging"), 0o777) }, true},
		{"another user's staging directories", func(dir, code string) error { return os.Chown(filepath.Join(dir, "staging"), 65534, 65534) }, true},
		{"staging directories elsewhere", func(dir, code string) error { return linkAway(filepath.Join(dir, "staging")) }, true},
		{"entries elsewhere", func(dir, code string) error { return linkAway(code) }, true},
		{"a link to the folder", func(dir, code string) error { return linkAway(dir) }, true},
		{"another user's entries", func(dir, code string) error { return os.Chown(code, 65534, 65534) }, true},
		{"another user's folder", func(dir, code string) error { return os.Chown(dir, 65534, 65534) }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			callEcho(t, cachedHost(t, dir, 0))
			if err := test.change(dir, filepath.Join(dir, "code")); err != nil {
				t.Skip(err)
			}
			_, err := host.New(context.Background(), host.Config{CacheDir: dir})
			if test.refuse {
				require.ErrorIs(t, err, host.ErrCacheFolder)
				require.ErrorContains(t, err, dir)
				return
			}
			require.NoError(t, err)
			require.True(t, cached(t, dir))
		})
	}
}

// linkAway puts a folder elsewhere, and a link to it in its place.
func linkAway(dir string) error {
	return errors.Join(os.Rename(dir, dir+".away"), os.Symlink(dir+".away", dir))
}

// TestCacheFolderMadeAnew: somebody removes the folder while a host uses it, and
// others can make it anew. Code is neither staged nor stored there, nor found.
func TestCacheFolderMadeAnew(t *testing.T) {
	for _, folder := range []string{".", "code", "staging"} {
		t.Run(folder, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			h := cachedHost(t, dir, 0)
			callEcho(t, h)
			unsafe := filepath.Join(dir, folder)
			require.NoError(t, os.Rename(unsafe, unsafe+".old"))
			require.NoError(t, os.CopyFS(unsafe, os.DirFS(unsafe+".old")))
			require.NoError(t, os.Chmod(unsafe, 0o777))
			before := tree(t, dir)
			require.False(t, found(t, h, echo.wasm()))
			require.False(t, found(t, h, guest{invoke: i32(1)}.wasm()))
			require.Equal(t, before, tree(t, dir))
		})
	}
}

// tree are the names of all files and folders.
func tree(t testing.TB, dir string) (names []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		names = append(names, name)
		return err
	}))
	return names
}

// TestCacheRemovesOnlyWhatIsIts: somebody has named a folder that has other
// things in it, under the same names.
func TestCacheRemovesOnlyWhatIsIts(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-48 * time.Hour)
	others := []string{
		"code/project/main.go", "code/0123456789abcdef0123456789abcdeg/main.go", "code/0123456789abcdef/main.go",
		"staging/papers/lock", "staging/toolhost-papers/lock",
	}
	ours := []string{"code/0123456789abcdef0123456789abcdef/x", "staging/toolhost-8/x"}
	for _, name := range append(others, ours...) {
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, make([]byte, 4096), 0o600))
		require.NoError(t, os.Chtimes(filepath.Dir(name), old, old))
	}
	file := filepath.Join(dir, "code/fedcba9876543210fedcba9876543210")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	callEcho(t, cachedHost(t, dir, 1))
	for _, name := range others {
		require.FileExists(t, filepath.Join(dir, name))
	}
	require.FileExists(t, file)
	for _, name := range ours {
		require.NoDirExists(t, filepath.Dir(filepath.Join(dir, name)))
	}
}
