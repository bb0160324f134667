package main

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
)

// inspect names the isolation mode and why, and the tools that ask for another.
func TestDescribeIsolation(t *testing.T) {
	pure, impure := abi.Tool{Name: "pure"}, abi.Tool{Name: "impure", Hints: abi.Hints{PureInit: new(false)}}
	reset, fresh := host.Isolation{Mode: host.Reset, Why: "why"}, host.Isolation{Mode: host.Fresh, Why: "its code uses table.set"}
	for _, test := range []struct {
		isolation host.Isolation
		tools     []abi.Tool
		want      string
	}{
		{reset, []abi.Tool{pure}, "each call starts from a snapshot of the plugin after its start-up: why"},
		{reset, []abi.Tool{pure, impure}, "each call starts from a snapshot of the plugin after its start-up: why; calls of impure get a fresh instance: pure_init is false"},
		{fresh, []abi.Tool{pure, impure}, "a fresh instance for each call: its code uses table.set"},
	} {
		require.Equal(t, test.want, describeIsolation(test.isolation, test.tools))
	}
}

// inspect says whether a run gives up its instance while it waits, with what the plugin
// needs and with what it is granted.
func TestDescribeWaiting(t *testing.T) {
	ctx := t.Context()
	h, err := host.New(ctx, host.Config{CacheDir: plugintest.CacheDir()})
	require.NoError(t, err)
	defer h.Close(ctx)

	ends := plugintest.Do().Return(abi.InvokeOK)
	folder := abi.FileNeed{Path: "/work", Mode: abi.FileRead}
	token := host.HTTPRule{URL: "https://example.com/*", Secret: "token"}
	for _, test := range []struct {
		name   string
		change func(*plugintest.Plugin)
		grant  host.Grant
		want   string
	}{
		{"memory only", func(*plugintest.Plugin) {}, host.Grant{}, "a run that waits gives up its instance"},
		{"without toolhost_resume", func(p *plugintest.Plugin) { p.Resume = nil }, host.Grant{},
			"a run that waits keeps its instance: it waits in its code, because it does not export toolhost_resume"},
		{"a command", func(p *plugintest.Plugin) { p.Command, p.Resume = true, nil }, host.Grant{},
			"a run that waits keeps its instance: a command runs once and exits"},
		{"needs a folder", func(p *plugintest.Plugin) { p.Manifest.Needs.Files = []abi.FileNeed{folder} }, host.Grant{},
			"a run that waits keeps its instance: it may have open files in its folders"},
		{"has a folder", func(*plugintest.Plugin) {}, host.Grant{Files: []host.Mount{{Dir: t.TempDir(), Path: "/work"}}},
			"a run that waits keeps its instance: it may have open files in its folders"},
		{"has secret arguments", func(p *plugintest.Plugin) {
			p.Manifest.Tools[0].InputSchema = json.RawMessage(`{"type":"object","properties":{"pin":{"type":"string","x-secret":true}}}`)
		}, host.Grant{},
			"a run that waits gives up its instance, unless it has secret arguments"},
		{"has a secret", func(*plugintest.Plugin) {}, host.Grant{HTTP: []host.HTTPRule{token}}, "a run that waits gives up its instance"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := plugintest.Plugin{Manifest: plugintest.Manifest("waits"), Invoke: ends, Resume: ends}
			test.change(&p)
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(dir+"/waits.wasm", p.Wasm(), 0o644))
			loaded, problems, err := plugins.Load(ctx, h, plugins.Config{Folders: []plugins.Folder{{Path: dir, FS: os.DirFS(dir)}}}, "waits.wasm")
			require.NoError(t, err)
			require.Empty(t, problems)

			info, err := h.Inspect(p.Wasm())
			require.NoError(t, err)
			isolation, err := h.Isolation(p.Wasm())
			require.NoError(t, err)
			c := config{}
			c.server.Grants = map[string]host.Grant{"waits": test.grant}
			require.Equal(t, test.want, c.waiting(loaded, info, isolation).String())
		})
	}
}
