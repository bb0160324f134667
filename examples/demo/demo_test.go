package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

// On a machine so busy that a run has not begun when it is looked at first, the
// demo looks again, and its transcript has one look.
func TestDemoWaitsForProgress(t *testing.T) {
	dir, m := t.TempDir(), plugintest.Manifest("primes")
	m.Needs.Clock = true
	m.Tools[0].Hints.SupportsBackground = true
	slow := plugintest.Do().Sleep(2).Progress("found some").Sleep(1).Say(abi.StreamResult, `{"count":11078937}`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "primes.wasm"), plugintest.Plugin{Manifest: m, Invoke: slow}.Wasm(), 0o600))
	s, err := server.Open(t.Context(), server.Config{
		Folders: []plugins.Folder{plugins.Dir(dir)}, CacheDir: plugintest.CacheDir(), Grants: map[string]plugins.Grant{"primes": {Clock: true}},
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close(t.Context())) }()
	var said strings.Builder
	printf := func(format string, args ...any) { fmt.Fprintf(&said, format, args...) }

	require.NoError(t, s.Compile(t.Context(), func(int, int, string, error) {}))
	require.NoError(t, (&session{s, printf}).spawnAndCheck(t.Context()), said.String())

	require.Equal(t, 3, strings.Count(said.String(), "\n> "), said.String())
	require.Equal(t, 3, strings.Count(said.String(), "\n< "), said.String())
}
