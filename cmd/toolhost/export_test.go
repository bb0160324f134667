package main

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
)

// An exported plugin has its manifest, so that whoever starts it lists its tools at once.
func TestExportSeals(t *testing.T) {
	h, err := host.New(t.Context(), host.Config{})
	require.NoError(t, err)
	defer h.Close(t.Context())
	open := func(files map[string][]byte, later bool) *plugins.Registry {
		folder := fstest.MapFS{}
		for name, data := range files {
			folder[name] = &fstest.MapFile{Data: data}
		}
		r, err := plugins.Open(t.Context(), h, plugins.Config{Folders: []plugins.Folder{{Path: "plugins", FS: folder}}, DescribeLater: later})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.Close(t.Context())) })
		return r
	}
	bare := plugintest.Plugin{Describe: plugintest.Do().Say(abi.StreamManifest, string(plugintest.JSON(plugintest.Manifest("bare"))))}.Wasm()
	require.Empty(t, open(map[string][]byte{"bare.wasm": bare}, true).Tools())

	packed, err := packPlugin(open(map[string][]byte{"bare.wasm": bare}, false).Plugins()[0])
	require.NoError(t, err)
	require.Len(t, open(packed.Files, true).Tools(), 1)
}
