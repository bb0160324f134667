//go:build unix

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
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
