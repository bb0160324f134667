package plugins

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// shop has a tool that needs only a folder, and one that needs more than that.
func shop() *abi.Manifest {
	m := named("shop", "stats", "order")
	m.Needs.Files = []abi.FileNeed{{Path: "/work", Mode: abi.FileRead}}
	m.Tools[1].Needs = abi.Needs{
		Files: []abi.FileNeed{{Path: "/work", Mode: abi.FileWrite}}, KV: abi.StoreWrite, Ask: true,
		HTTP: []abi.HTTPNeed{{URL: "https://shop.example/*"}}, Secrets: []string{"shop"},
	}
	return m
}

// A tool waits for its own needs and those of its plugin, and for no needs of other tools.
func TestNeedsOfTools(t *testing.T) {
	work := host.Mount{Dir: t.TempDir(), Path: "/work"}
	write := work
	write.Mode = abi.FileWrite
	rule := host.HTTPRule{URL: "https://shop.example/*", Secret: "shop"}
	for name, c := range map[string]struct {
		grant        Grant
		stats, order string // what each lacks
		plugin       string // why none of its tools is called
		report       string
	}{
		"nothing": {
			Grant{}, "denied: the plugin shop needs files /work (read), which the operator has not granted",
			"denied: the tool shop_order needs files /work (read), ask, kv (write), http GET https://shop.example/*, secret shop, files /work (write), which the operator has not granted",
			"denied: the plugin shop needs files /work (read), ask, kv (write), http GET https://shop.example/*, secret shop, files /work (write), which the operator has not granted",
			"not granted what it needs: files /work (read), ask, kv (write), http GET https://shop.example/*, secret shop, files /work (write)",
		},
		"those of the plugin": {
			Grant{Files: []host.Mount{work}}, "",
			"denied: the tool shop_order needs ask, kv (write), http GET https://shop.example/*, secret shop, files /work (write), which the operator has not granted", "",
			"not granted what some of its tools need: shop_order needs ask, kv (write), http GET https://shop.example/*, secret shop, files /work (write)",
		},
		"all but a mode": {
			Grant{Files: []host.Mount{work}, KV: host.KV{Mode: abi.StoreWrite}, Ask: true, HTTP: []host.HTTPRule{rule}}, "",
			"denied: the tool shop_order needs files /work (write), which the operator has not granted", "",
			"not granted what some of its tools need: shop_order needs files /work (write)",
		},
		"those of a tool only": {
			Grant{KV: host.KV{Mode: abi.StoreWrite}, Ask: true, HTTP: []host.HTTPRule{rule}},
			"denied: the plugin shop needs files /work (read), which the operator has not granted",
			"denied: the tool shop_order needs files /work (read), files /work (write), which the operator has not granted",
			"denied: the plugin shop needs files /work (read), files /work (write), which the operator has not granted",
			"not granted what it needs: files /work (read), files /work (write)",
		},
		"all": {Grant{Files: []host.Mount{write}, KV: host.KV{Mode: abi.StoreWrite}, Ask: true, HTTP: []host.HTTPRule{rule}}, "", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := openWith(t, newHost(t), Config{Folders: []Folder{folder(map[string][]byte{"shop.wasm": sealed(shop())})}, Grants: map[string]Grant{"shop": c.grant}})
			p := r.Plugins()[0]

			for tool, want := range map[string]string{"shop_stats": c.stats, "shop_order": c.order} {
				found, err := r.Lookup(tool)
				require.NoError(t, err)
				result, err := found.Call(t.Context(), host.Call{})
				if want == "" {
					require.NoError(t, err, tool)
					continue
				}
				require.ErrorIs(t, err, host.ErrDenied)
				require.Equal(t, abi.Result{Kind: abi.ToolError, Error: want}, result)
			}
			require.Equal(t, c.plugin != "", p.Denied() != nil)
			if c.plugin != "" {
				require.EqualError(t, p.Denied(), c.plugin)
			}
			require.Equal(t, c.report == "", len(p.Missing) == 0)
			if c.report != "" {
				require.EqualError(t, &GrantError{p}, c.report)
			}
		})
	}
}

// A need gives nothing, and an optional need keeps no tool from working.
func TestOptionalNeeds(t *testing.T) {
	m := named("p", "a", "b")
	m.Needs.Optional = &abi.Needs{KV: abi.StoreWrite, Files: []abi.FileNeed{{Path: "/cache", Mode: abi.FileWrite}}}
	m.Tools[1].Needs = abi.Needs{Clock: true, Optional: &abi.Needs{Ask: true}}
	r := openWith(t, newHost(t), Config{Folders: []Folder{folder(map[string][]byte{"p.wasm": sealed(m)})}})

	p := r.Plugins()[0]
	require.Equal(t, Grant{}, p.Grant)
	require.Equal(t, []string{"clock"}, p.Missing)
	require.NoError(t, p.Tools[0].Denied())
	require.EqualError(t, p.Tools[1].Denied(), "denied: the tool p_b needs clock, which the operator has not granted")
	require.Equal(t, []string{"kv (write) (optional)", "files /cache (write) (optional)", "clock (tool b)", "ask (tool b) (optional)"}, Needs(p.Manifest))
	_, err := p.Tools[0].Call(t.Context(), host.Call{})
	require.NoError(t, err)
}

// A tool whose needs have changed is another tool, to those that list tools, and one whose
// grants have changed, too.
func TestReloadNeedsOfTools(t *testing.T) {
	m := named("p", "a", "b")
	files := fstest.MapFS{"p.wasm": wasmFile(sealed(m))}
	r := openMap(t, files)

	m.Tools[1].Needs.Clock = true
	files["p.wasm"] = wasmFile(sealed(m))
	c := reload(t, r)
	require.Equal(t, []string{"p_b"}, c.ToolsChanged)
	require.Equal(t, "plugins/p.wasm: not granted what some of its tools need: p_b needs clock", c.Problems[0].String())

	c, err := r.Reconfigure(t.Context(), func(c *Config) { c.Grants = map[string]Grant{"p": {Clock: true}} })
	require.NoError(t, err)
	require.Equal(t, []string{"p_b"}, c.ToolsChanged)
	require.Empty(t, c.Problems)
}

// The needs of a tool are checked as those of a plugin are.
func TestHostileNeeds(t *testing.T) {
	load := func(change func(*abi.Manifest)) []string {
		m := named("p", "a", "b")
		change(m)
		return problems(open(t, map[string][]byte{"p.wasm": sealed(m)}))
	}

	require.Equal(t, []string{`plugins/p.wasm: custom section toolhost.manifest: bad manifest: /tools/1/needs/http/0/url: host "1.2.3" is neither a name nor an IPv4 address of four decimal numbers`},
		load(func(m *abi.Manifest) { m.Tools[1].Needs.HTTP = []abi.HTTPNeed{{URL: "https://1.2.3/*"}} }))
	require.Equal(t, []string{`plugins/p.wasm: custom section toolhost.manifest: bad manifest: /tools/0/needs/optional/http/0/url: host "1.2.3" is neither a name nor an IPv4 address of four decimal numbers`},
		load(func(m *abi.Manifest) {
			m.Tools[0].Needs.Optional = &abi.Needs{HTTP: []abi.HTTPNeed{{URL: "https://1.2.3/*"}}}
		}))
	require.Contains(t, load(func(m *abi.Manifest) {
		m.Tools[0].Hints.OpenWorld = new(false)
		m.Tools[1].Needs.HTTP = []abi.HTTPNeed{{URL: "https://a.example/*"}}
	})[0], `/tools/0/hints/open_world (tool "a"): false, but the plugin needs http`)

	many := func(n int) (needs []abi.HTTPNeed) {
		for i := range n {
			needs = append(needs, abi.HTTPNeed{URL: fmt.Sprintf("https://host%d.example/*", i)})
		}
		return needs
	}
	require.Empty(t, load(func(m *abi.Manifest) { m.Needs.HTTP, m.Tools[0].Needs.HTTP = many(600), many(400) }))
	require.Contains(t, load(func(m *abi.Manifest) { m.Needs.HTTP, m.Tools[0].Needs.HTTP = many(600), many(401) })[0],
		"/needs: expected at most 1000 needs of the plugin and its tools, found 1001")
}

// As many tools and needs as there may be are compared in little time.
func TestManyNeeds(t *testing.T) {
	var names []string
	for i := range abi.MaxTools {
		names = append(names, fmt.Sprintf("t%d", i))
	}
	m := named("p", names...)
	var rules []host.HTTPRule
	for i := range abi.MaxNeeds - abi.MaxTools {
		m.Needs.HTTP = append(m.Needs.HTTP, abi.HTTPNeed{URL: fmt.Sprintf("https://host%d.example/%s", i, strings.Repeat("a/", 50))})
		rules = append(rules, host.HTTPRule{URL: fmt.Sprintf("https://other%d.example/*", i)})
	}
	for i := range m.Tools {
		m.Tools[i].Needs.Env = []string{fmt.Sprintf("E%d", i)}
	}

	r := openWith(t, newHost(t), Config{Folders: []Folder{folder(map[string][]byte{"p.wasm": sealed(m)})}, Grants: map[string]Grant{"p": {HTTP: slices.Clip(rules[:256])}}})
	require.Empty(t, problems(r))
	require.Len(t, r.Plugins()[0].Missing, abi.MaxNeeds)
	require.Len(t, r.Tools()[0].Missing, abi.MaxNeeds-abi.MaxTools+1)

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, tool := range r.Tools() { // as each listing does
		require.True(t, tool.Denied() != nil)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}
