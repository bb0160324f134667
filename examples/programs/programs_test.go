// Package programs_test checks the manifests of published programs.
package programs_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
)

func TestMain(m *testing.M) {
	host.CompilerMain()
	os.Exit(m.Run())
}

// source matches what get.sh reads: a version, or a file with its checksum.
var source = regexp.MustCompile(`(?m)\Ax-source: (go \S+@v\S+|crate \S+@\d\S+( \S+)?|pypi \S+==\S+ \S+\.wasm [0-9a-f]{64})$`)

// TestManifests loads each manifest, next to a program that does nothing, and checks that it
// says where the program is from, that it has examples, and that the README names it.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob("*.toolhost.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 6)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)

	dir := t.TempDir()
	program := plugintest.Plugin{Command: true, Invoke: plugintest.Do().Exit(0)}.Wasm()
	for _, file := range files {
		manifest, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Regexp(t, source, string(manifest), file)
		name := strings.TrimSuffix(file, ".toolhost.yaml")
		require.Contains(t, string(readme), "["+name+"]("+file+")")
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), manifest, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".wasm"), program, 0o600))
	}

	h, err := host.New(t.Context(), host.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.Close(context.Background()) })
	all, err := plugins.Open(t.Context(), h, plugins.Config{Folders: []plugins.Folder{plugins.Dir(dir)}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = all.Close(context.Background()) })
	require.Empty(t, all.Problems())
	require.Len(t, all.Plugins(), len(files))
	for _, tool := range all.Tools() {
		require.NotEmpty(t, tool.Examples, tool.Name)
		require.Contains(t, string(readme), "`"+tool.Name+"`")
		for _, f := range tool.Plugin.Manifest.Needs.Files {
			require.DirExists(t, filepath.Join("testdata", f.Path), tool.Name)
		}
	}
}
