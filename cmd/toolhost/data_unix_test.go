//go:build unix

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/server"
)

// A data folder that others can write to is refused by all that keep something
// there, also behind a link, and nothing is put into it.
func TestUnsafeDataFolder(t *testing.T) {
	t.Setenv("TOOLHOST_PLUGINS", t.TempDir())
	for _, mode := range []os.FileMode{0o770, 0o702, 0o777 | os.ModeSticky} {
		dir := filepath.Join(t.TempDir(), "data")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Chmod(dir, mode))
		link := filepath.Join(t.TempDir(), "link")
		require.NoError(t, os.Symlink(dir, link))
		for _, data := range []string{dir, link} {
			for _, args := range [][]string{{"serve"}, {"mcp"}, {"compile"}, {"call", "x"}} {
				code, out, errs := toolhost(t.Context(), append(args, "--data", data)...)
				require.Equal(t, exitUsage, code, args)
				require.Empty(t, out, args)
				require.Equal(t, "toolhost: data folder: unsafe: "+dir+" can be written by others: chmod go-w "+dir+
					", after you have removed what others put there\ntoolhost: hint: fix this, or choose another folder with --data\n", errs, args)
			}
		}
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, entries)
		require.NoError(t, os.Chmod(dir, 0o755))
	}
}

// Root can list, check, lock and call with the configuration of a service that has another
// user, and leaves nothing in its data folder, which would be the service's to run as root,
// or root's and so unreadable for the service.
func TestDataOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	data, etc := filepath.Join(t.TempDir(), "data"), t.TempDir()
	require.NoError(t, os.Mkdir(data, 0o700))
	require.NoError(t, os.Chown(data, 65534, 65534))
	plugin := plugintest.Plugin{Manifest: plugintest.Manifest("echo"), Invoke: plugintest.Do().Echo()}
	require.NoError(t, os.WriteFile(filepath.Join(etc, "echo.wasm"), plugin.Wasm(), 0o600))
	config := filepath.Join(etc, "toolhost.yaml")
	require.NoError(t, os.WriteFile(config, []byte("plugins: [.]\ndata: "+data+"\n"), 0o600))
	t.Setenv("TOOLHOST_CONFIG", config)

	for _, args := range [][]string{{"config", "--check"}, {"list"}, {"lock", "--yes"}, {"lock", "--check"}, {"list"}, {"call", "echo"}} {
		code, _, errs := toolhost(t.Context(), args...)
		require.Zero(t, code, "%s: %s", args, errs)
		require.Empty(t, errs, args)
	}
	require.FileExists(t, filepath.Join(etc, "toolhost.lock"))

	for _, args := range [][]string{{"serve"}, {"mcp"}, {"compile"}} {
		code, _, errs := toolhost(t.Context(), args...)
		require.Equal(t, exitUsage, code, args)
		require.Equal(t, "toolhost: data folder: "+data+" belongs to another user\n"+
			"toolhost: hint: run this command as that user; toolhost call --remote calls through its server\n", errs, args)
	}
	entries, err := os.ReadDir(data)
	require.NoError(t, err)
	require.Empty(t, entries)

	require.NoError(t, os.Chmod(data, 0o770))
	code, _, errs := toolhost(t.Context(), "list")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "unsafe: "+data+" belongs to the user 65534")
}

// Root restores a backup for the user who owns the data folder.
func TestRestoreForAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	t.Setenv("TOOLHOST_PLUGINS", t.TempDir())
	old, parent := t.TempDir(), t.TempDir()
	s, err := server.Open(t.Context(), server.Config{DataDir: filepath.Join(old, "runs")})
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))
	backup := filepath.Join(t.TempDir(), "backup.zip")
	code, _, errs := toolhost(t.Context(), "backup", backup, "--data", old)
	require.Zero(t, code, errs)

	data := filepath.Join(parent, "data")
	require.NoError(t, os.Mkdir(data, 0o700))
	require.NoError(t, os.Chown(data, 65534, 65534))
	code, _, errs = toolhost(t.Context(), "restore", backup, "--data", data)
	require.Zero(t, code, errs)
	var restored []string
	require.NoError(t, filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		require.EqualValues(t, 65534, info.Sys().(*syscall.Stat_t).Uid, path)
		restored = append(restored, d.Name())
		return nil
	}))
	require.Contains(t, restored, "state.db")
	left, err := os.ReadDir(parent)
	require.NoError(t, err)
	require.Len(t, left, 1)

	again := func(what string) {
		code, _, errs := toolhost(t.Context(), "restore", backup, "--data", data)
		require.Equal(t, exitUsage, code, what)
		require.Contains(t, errs, "file already exists", what)
	}
	runs := filepath.Join(data, "runs")
	again("it is there")
	require.NoError(t, os.RemoveAll(runs))
	require.NoError(t, os.Symlink(parent, runs))
	again("a link")
	require.NoError(t, os.Remove(runs))
	require.NoError(t, os.WriteFile(runs, []byte("mine"), 0o600))
	again("a file")
	require.FileExists(t, runs)
}

// A new key leaves the file of keys to those who could read it.
func TestNewKeyKeepsReaders(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	file := filepath.Join(t.TempDir(), "keys")
	for range 2 {
		code, _, errs := toolhost(t.Context(), "secret", "key", file)
		require.Zero(t, code, errs)
		require.NoError(t, os.Chown(file, 0, 65534))
		require.NoError(t, os.Chmod(file, 0o440))
	}
	code, _, errs := toolhost(t.Context(), "secret", "key", file)
	require.Zero(t, code, errs)

	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o440), info.Mode())
	require.EqualValues(t, 65534, info.Sys().(*syscall.Stat_t).Gid)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(string(text), "\n"))
}

// TestNamedConfigOfOthers: a configuration that others can write to, or that is theirs, is
// refused even if it was named, also behind a link.
func TestNamedConfigOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(file string) error
		want   string // what follows the name of the file
	}{
		"the group writes": {func(file string) error { return os.Chmod(file, 0o664) }, " can be written by others: chmod go-w FILE, after you have checked it"},
		"others write":     {func(file string) error { return os.Chmod(file, 0o606) }, " can be written by others: chmod go-w FILE, after you have checked it"},
		"another user's": {func(file string) error { return os.Chown(file, 65534, -1) },
			" belongs to the user 65534: use one of your own, or have chown give it to you or root, after you have checked it"},
		"others read": {func(file string) error { return os.Chmod(file, 0o644) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "another user's" && os.Geteuid() != 0 {
				t.Skip("only root can give files away")
			}
			file := filepath.Join(t.TempDir(), "toolhost.yaml")
			require.NoError(t, os.WriteFile(file, []byte("exec: true"), 0o600))
			require.NoError(t, c.change(file))
			link := filepath.Join(t.TempDir(), "link.yaml")
			require.NoError(t, os.Symlink(file, link))

			for _, named := range []string{file, link} {
				code, _, errs := toolhost(t.Context(), "config", "--config", named)
				if c.want == "" {
					require.Equal(t, 0, code, errs)
					continue
				}
				require.Equal(t, exitUsage, code)
				require.Contains(t, errs, "toolhost: "+named+": unsafe: "+named+strings.ReplaceAll(c.want, "FILE", named))

				t.Setenv("TOOLHOST_CONFIG", named)
				code, _, _ = toolhost(t.Context(), "list")
				require.Equal(t, exitUsage, code)
				t.Setenv("TOOLHOST_CONFIG", "")
			}
		})
	}
}
