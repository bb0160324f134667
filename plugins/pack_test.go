package plugins

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// pack is a folder of plugins that come with the program.
func pack(files map[string][]byte) Folder {
	f := folder(files)
	f.Path, f.Pack = "pack", true
	return f
}

// Agents know the tools of a pack by their own names, also where a call fails.
func TestPack(t *testing.T) {
	needy := named("files", "read_file")
	needy.Needs.Clock = true
	r := openWith(t, newHost(t), Config{Folders: []Folder{pack(map[string][]byte{"files.wasm": sealed(needy), "math.wasm": sealed(named("math", "add", "math"))})}})
	require.Equal(t, []string{"add", "math", "read_file"}, toolNames(r))
	require.Empty(t, problems(r))

	tool, err := r.Lookup("read_file")
	require.NoError(t, err)
	_, err = tool.Call(context.Background(), host.Call{})
	require.ErrorIs(t, err, host.ErrDenied)
	require.ErrorContains(t, err, "read_file: denied: the plugin files needs clock")
	tool, err = r.Lookup("add")
	require.NoError(t, err)
	_, err = tool.Call(context.Background(), host.Call{Args: []byte(`{`)})
	var call *host.CallError
	require.ErrorAs(t, err, &call)
	require.Equal(t, "add", call.Name)
}

// A plugin of a pack gives way to one of a folder, for its own name and for those of its
// tools, whatever the order of the folders, and is back when that is gone.
func TestPackGivesWay(t *testing.T) {
	builtIn := pack(map[string][]byte{"files.wasm": sealed(named("files", "read_file")), "math.wasm": sealed(named("math", "add", "divide")), "echo.wasm": sealed(named("echo"))})
	dir := t.TempDir()
	write := func(name string, m *abi.Manifest) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), sealed(m), 0o600))
	}
	write("mine.wasm", named("add"))
	write("files.wasm", named("files", "open"))
	for name, folders := range map[string][]Folder{"first": {builtIn, Dir(dir)}, "last": {Dir(dir), builtIn}} {
		t.Run(name, func(t *testing.T) {
			r := openWith(t, newHost(t), Config{Folders: folders})
			require.Equal(t, []string{"add", "echo", "files_open"}, toolNames(r))
			require.Empty(t, problems(r))
			require.ElementsMatch(t, []string{
				"pack/files.wasm: overridden by " + dir + `/files.wasm, which also has the plugin "files"`,
				"pack/math.wasm: overridden by " + dir + `/mine.wasm, which also has the tool "add"`,
			}, texts(r.Overridden()))
		})
	}

	r := openWith(t, newHost(t), Config{Folders: []Folder{builtIn, Dir(dir)}})
	require.NoError(t, os.Remove(filepath.Join(dir, "mine.wasm")))
	c, err := r.Reload(context.Background())
	require.NoError(t, err)
	require.Equal(t, []string{"math"}, c.Added)
	require.Equal(t, []string{"add"}, c.ToolsChanged)
	require.Equal(t, []string{"divide"}, c.ToolsAdded)
	require.Empty(t, c.Overridden)

	write("echo.wasm", named("echo", "loud"))
	c, err = r.Reload(context.Background())
	require.NoError(t, err)
	require.Equal(t, []string{"echo"}, c.Changed)
	require.Equal(t, []string{"pack/echo.wasm: overridden by " + dir + `/echo.wasm, which also has the plugin "echo"`}, texts(c.Overridden))
	require.Equal(t, []string{"add", "divide", "echo_loud", "files_open"}, toolNames(r))
}

// What a plugin of a pack lacks is an offer, and no problem of a reload.
func TestPackLacksGrants(t *testing.T) {
	needy := named("clock")
	needy.Needs.Clock = true
	r := openWith(t, newHost(t), Config{Folders: []Folder{pack(map[string][]byte{"clock.wasm": sealed(needy)})}, Grants: map[string]Grant{"clock": {Clock: true}}})
	c, err := r.Reconfigure(context.Background(), func(c *Config) { c.Grants = nil })
	require.NoError(t, err)
	require.Equal(t, []string{"clock"}, c.Changed)
	require.Empty(t, c.Problems)
	require.Equal(t, []string{"clock"}, r.Plugins()[0].Missing)
}

// An earlier version of a plugin of a pack has the names it had.
func TestPackVersion(t *testing.T) {
	r := openWith(t, newHost(t), Config{Folders: []Folder{pack(map[string][]byte{"math.wasm": sealed(named("math", "add"))})}})
	kept := t.TempDir()
	require.NoError(t, r.Plugins()[0].Keep(kept))
	digest, err := r.Plugins()[0].Digest()
	require.NoError(t, err)
	p, err := r.Version(context.Background(), kept, "math", digest)
	require.NoError(t, err)
	require.Equal(t, "add", p.Tools[0].Name)
}

func texts(all []Problem) []string {
	out := []string{}
	for _, p := range all {
		out = append(out, p.String())
	}
	return out
}
