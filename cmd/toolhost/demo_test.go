package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/examples/demo"
)

// The demo serves the examples that it names, and none of the others that may be built: the
// example files would take the place of the starter's.
func TestDemoServesItsPluginsOnly(t *testing.T) {
	dist, served := t.TempDir(), t.TempDir()
	for _, name := range append([]string{"files"}, demo.Plugins...) {
		require.NoError(t, os.WriteFile(filepath.Join(dist, name+".wasm"), []byte(name), 0o600))
	}
	require.NoError(t, copyExamples(dist, served, demo.Plugins))

	var names []string
	for _, name := range demo.Plugins {
		names = append(names, filepath.Join(served, name+".wasm"))
	}
	found, err := filepath.Glob(filepath.Join(served, "*"))
	require.NoError(t, err)
	require.ElementsMatch(t, names, found)
}
