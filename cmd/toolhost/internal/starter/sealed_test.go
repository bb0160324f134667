package starter

import (
	"context"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/cmd/toolhost/internal/bundle"
	"github.com/toolhost/toolhost/guest/js"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/plugintest"
)

var update = flag.Bool("update", false, "build the plugins of the pack from their sources")

// TestSealed: what is embedded is what toolhost build makes of the sources. Run it with
// -update after a change.
func TestSealed(t *testing.T) {
	fulltest.Only(t, "builds the plugins of the starter again")
	ctx := context.Background()
	h, err := host.New(ctx, host.Config{CacheDir: plugintest.CacheDir()})
	require.NoError(t, err)
	defer h.Close(ctx)

	sources, err := filepath.Glob("*/tool.js")
	require.NoError(t, err)
	names := []string{}
	for _, source := range sources {
		name := filepath.Dir(source)
		names = append(names, name)
		module, err := bundle.Module(source)
		require.NoError(t, err)
		manifest, err := h.DescribeWith(ctx, js.Plugin(module), host.DescribeOptions{Fuel: 20_000_000_000})
		require.NoError(t, err)
		m, err := abi.DecodeManifest(manifest)
		require.NoError(t, err)
		require.Equal(t, name, m.Name)

		for file, want := range map[string][]byte{name + ".js": module, name + ".json": manifest} {
			file = filepath.Join("sealed", file)
			if *update {
				require.NoError(t, os.WriteFile(file, want, 0o644))
				continue
			}
			have, err := sealed.ReadFile(filepath.ToSlash(file))
			require.NoError(t, err)
			require.Equal(t, string(want), string(have), "run go generate ./cmd/toolhost/internal/starter")
		}
	}
	if !*update {
		require.Equal(t, names, Names(), "a plugin without sources")
	}
}

func TestFS(t *testing.T) {
	require.NoError(t, fstest.TestFS(FS(Names()), "files.wasm", "math.wasm"))
	_, err := fs.Stat(FS([]string{"math"}), "files.wasm")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Plugin("none")
	require.ErrorIs(t, err, fs.ErrNotExist)
}
