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

	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/plugintest"
)

// TestByHand does what the last section of docs/go.md says, to the letter,
// with a clone and without a network.
func TestByHand(t *testing.T) {
	fulltest.Only(t, "follows a page of the docs, and builds its plugins")
	if runtime.GOOS == "windows" {
		t.Skip("the page has commands of a Unix shell")
	}
	text, err := os.ReadFile("../../docs/go.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "## By hand\n")
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

// TestLanguagePages does what the pages for authors say, each in its language.
func TestLanguagePages(t *testing.T) {
	for _, page := range []string{"python.md", "javascript.md", "go.md"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel() // it mostly waits
			p := newReader(t, page)
			if page == "go.md" {
				p.env = append(p.env, offline(t)...)
			}
			p.follow()
		})
	}
}

// TestExtismPage does what docs/extism.md says, with plugins that behave as those of the page.
func TestExtismPage(t *testing.T) {
	p := newReader(t, "extism.md")
	for plugin, folder := range map[string]string{"count_vowels": "plugins", "greet": "hosted", "hash": "mcp"} {
		build := exec.Command("go", "build", "-buildmode=c-shared", "-o", filepath.Join(p.dir, folder, plugin+".wasm"), "./testdata/extism/"+plugin)
		build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	p.follow()
}
