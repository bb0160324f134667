package plugins

import (
	"context"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
)

// newHost returns a host that is closed when the test ends.
func newHost(t testing.TB) *host.Host {
	t.Helper()
	h, err := host.New(t.Context(), host.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
	return h
}

// folder is a folder in memory; messages call it plugins.
func folder(files map[string][]byte) Folder {
	m := fstest.MapFS{}
	for name, data := range files {
		m[name] = &fstest.MapFile{Data: data, Mode: 0o644}
	}
	return Folder{Path: "plugins", FS: m}
}

// open opens one folder with a host of its own.
func open(t testing.TB, files map[string][]byte) *Registry {
	t.Helper()
	return openWith(t, newHost(t), Config{Folders: []Folder{folder(files)}})
}

func openWith(t testing.TB, h *host.Host, cfg Config) *Registry {
	t.Helper()
	r, err := Open(t.Context(), h, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close(context.Background())) })
	return r
}

// sealed is a plugin that echoes its arguments, with its manifest in it.
func sealed(m *abi.Manifest) []byte {
	return plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Echo()}.Wasm()
}

// unsealed is a plugin that echoes its arguments and does not say what it is.
func unsealed() []byte { return sealed(nil) }

// describing is a plugin that says itself what it is.
func describing(m *abi.Manifest) []byte {
	return plugintest.Plugin{
		Describe: plugintest.Do().Say(abi.StreamManifest, string(plugintest.JSON(m))),
		Invoke:   plugintest.Do().Echo(),
	}.Wasm()
}

// named is a manifest of a plugin with these tools.
func named(plugin string, tools ...string) *abi.Manifest {
	m := plugintest.Manifest(plugin)
	if len(tools) > 0 {
		m.Tools = nil
	}
	for _, name := range tools {
		m.Tools = append(m.Tools, plugintest.Tool(name))
	}
	return m
}

// toolNames are the names agents see.
func toolNames(r *Registry) []string {
	names := []string{}
	for _, t := range r.Tools() {
		names = append(names, t.Name)
	}
	return names
}

// problems are the problems as text.
func problems(r *Registry) []string {
	texts := []string{}
	for _, p := range r.Problems() {
		texts = append(texts, p.String())
	}
	return texts
}

// countedFS counts how often a file is opened. Compilations take turns, so that
// it needs no lock.
type countedFS struct {
	fstest.MapFS
	reads int
}

func (c *countedFS) Open(name string) (fs.File, error) {
	if name != "." {
		c.reads++
	}
	return c.MapFS.Open(name)
}
