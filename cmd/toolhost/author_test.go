package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/plugintest"
)

// TestAuthorsPage does what the first section of docs/plugins.md says, to the letter,
// with a clone and without a network.
func TestAuthorsPage(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the page has commands of a Unix shell")
	}
	text, err := os.ReadFile("../../docs/plugins.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "## From nothing to a tested tool\n")
	section, _, _ = strings.Cut(section, "\n## ")
	require.True(t, found)

	dir := filepath.Join(t.TempDir(), "hello")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for _, file := range regexp.MustCompile("(?s)`([a-z_]+\\.go)`[^`]*:\n\n```go\n(.*?)```").FindAllStringSubmatch(section, -1) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file[1]), []byte(file[2]), 0o600))
	}
	clone, err := filepath.Abs("../..")
	require.NoError(t, err)
	home, bin, data := t.TempDir(), t.TempDir(), t.TempDir()
	require.NoError(t, os.Symlink(clone, filepath.Join(home, "toolhost"))) // where the page has it
	require.NoError(t, os.Symlink(plugintest.CacheDir(), filepath.Join(data, "cache")))

	// Tidying looks at the tests of dependencies too, which need not be in the module
	// cache: -e does not fail without them.
	script := "set -e\n"
	for line := range strings.Lines(section) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			script += strings.Replace(command, "go mod tidy", "go mod tidy -e", 1)
		}
	}
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = filepath.Dir(dir)
	cmd.Env = append(append(os.Environ(), "HOME="+home, "GOBIN="+bin, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "TOOLHOST_DATA="+data), offline(t)...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", script, out)
	require.Contains(t, string(out), "Hello, Ada!\n")
}
