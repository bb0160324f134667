package catalog

import (
	"context"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/gotool"
)

// settings are settings for tests. The zero value has only defaults.
type settings struct {
	terms    Terms
	listings Listings
	grants   map[string]plugins.Grant // by plugin name
	tools    []gotool.Tool            // of the program
}

func (s settings) Rules() Rules                  { return NewRules(s.terms) }
func (s settings) Listings() Listings            { return s.listings }
func (s settings) Approval(t *Tool) abi.Approval { return t.Tool.Approval }

// open returns the catalog of the plugins in a folder.
func open(t testing.TB, s settings, files fstest.MapFS) *Catalog {
	t.Helper()
	h, err := host.New(t.Context(), host.Config{})
	require.NoError(t, err)
	program, err := NewProgram(gotool.Config{}, []string{"reserved"}, s.tools)
	require.NoError(t, err)
	registry, err := plugins.Open(t.Context(), h, plugins.Config{Folders: []plugins.Folder{{Path: "zoo", FS: files}}, Grants: s.grants, Taken: program.Names(), Attached: s})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.Background()
		require.NoError(t, program.Close(ctx))
		require.NoError(t, h.Close(ctx))
		require.NoError(t, registry.Close(ctx))
	})
	return New(registry, program)
}

// plugin is a file with a plugin of one tool.
func plugin(m *abi.Manifest) *fstest.MapFile {
	return &fstest.MapFile{Data: plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Echo()}.Wasm(), ModTime: time.Now()}
}

func own(name string) gotool.Tool {
	return gotool.Tool{Name: name, Description: "For tests.", Hints: abi.Hints{SupportsBackground: true}, Handler: gotool.Handle(
		func(context.Context, *gotool.Call, struct{}) (gotool.None, error) { return gotool.None{}, nil })}
}

func namesOf(tools []*Tool) (names []string) {
	for _, t := range tools {
		names = append(names, t.Name)
	}
	return names
}

// The tools of plugins and of the program are one catalog, sorted by name.
func TestTools(t *testing.T) {
	c := open(t, settings{tools: []gotool.Tool{own("between"), own("zebra")}}, fstest.MapFS{
		"a.wasm": plugin(plugintest.Manifest("above")), "c.wasm": plugin(plugintest.Manifest("cat")),
	})
	require.Equal(t, []string{"above", "between", "cat", "zebra"}, namesOf(c.Tools()))

	for name, from := range map[string]string{"cat": "cat", "zebra": ""} {
		tool, err := c.Find(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, from, tool.PluginName())
		require.Equal(t, from, tool.Provider().Plugin)
		require.Equal(t, from == "", tool.CallsTools(), "a tool of the program may call any")
		require.Equal(t, from != "", tool.Restartable(), "what a tool of the program does is not known")
	}
	_, err := c.Lookup("catt")
	require.ErrorIs(t, err, plugins.ErrNoTool)
	require.ErrorContains(t, err, "cat")
	_, err = c.Lookup("agents", "agent")
	require.ErrorContains(t, err, `did you mean "agent"`)
}

// A name belongs to one tool: the first that claims it.
func TestRegister(t *testing.T) {
	c := open(t, settings{tools: []gotool.Tool{own("mine")}}, fstest.MapFS{"a.wasm": plugin(plugintest.Manifest("above")), "m.wasm": plugin(plugintest.Manifest("mine"))})
	require.Len(t, c.registry.Problems(), 1)
	require.Equal(t, []string{"above", "mine"}, namesOf(c.Tools()))

	require.ErrorContains(t, c.Register(own("reserved")), `tool "reserved": the name is reserved for the host`)
	require.ErrorContains(t, c.Register(own("mine")), "it is registered already")
	require.ErrorContains(t, c.Register(own("above")), `tool "above": `)
	require.NoError(t, c.Register(own("other")))
	require.Equal(t, []string{"above", "mine", "other"}, namesOf(c.Tools()))

	require.NoError(t, c.Unregister("other"))
	require.ErrorIs(t, c.Unregister("other"), plugins.ErrNoTool)
	require.ErrorIs(t, c.Unregister("above"), plugins.ErrNoTool, "it is a plugin's")
	require.NoError(t, c.Register(own("other")), "the name is free again")
}
