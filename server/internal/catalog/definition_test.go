package catalog

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// Annotations say what a tool can do here, not what it says of itself.
func TestAnnotations(t *testing.T) {
	write := plugins.Grant{Files: []host.Mount{{Path: "/w", Mode: abi.FileWrite}}}
	read := plugins.Grant{Files: []host.Mount{{Path: "/w"}}}
	for _, test := range []struct {
		name  string
		grant plugins.Grant
		hints abi.Hints
		want  wire.Annotations
	}{
		{"nothing said, nothing granted", plugins.Grant{}, abi.Hints{}, wire.Annotations{ReadOnly: true}},
		{"nothing said, reading granted", read, abi.Hints{}, wire.Annotations{ReadOnly: true}},
		{"nothing said, writing granted", write, abi.Hints{}, wire.Annotations{Destructive: true}},
		{"writes, but only adds", write, abi.Hints{Destructive: new(false)}, wire.Annotations{}},
		{"readonly next to tools that write", write, abi.Hints{Readonly: true}, wire.Annotations{ReadOnly: true, Idempotent: true}},
		{"destructive, it says, but nothing granted", plugins.Grant{}, abi.Hints{Destructive: new(true)}, wire.Annotations{ReadOnly: true}},
		{"idempotent", write, abi.Hints{Idempotent: true, Destructive: new(false)}, wire.Annotations{Idempotent: true}},
		{"open to the world", plugins.Grant{HTTP: []host.HTTPRule{{URL: "https://example.com/*"}}}, abi.Hints{OpenWorld: new(false)}, wire.Annotations{ReadOnly: true, OpenWorld: true}},
		{"writes to the world", plugins.Grant{HTTP: []host.HTTPRule{{URL: "https://example.com/*", Methods: []string{"POST"}}}}, abi.Hints{}, wire.Annotations{Destructive: true, OpenWorld: true}},
		{"private rules only", plugins.Grant{HTTP: []host.HTTPRule{{URL: "https://10.0.0.1/*", Private: true}}}, abi.Hints{}, wire.Annotations{ReadOnly: true}},
		{"open to the world, it says", plugins.Grant{}, abi.Hints{OpenWorld: new(true)}, wire.Annotations{ReadOnly: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, new(Catalog).Annotations(OfPlugin(&plugins.Tool{Tool: &abi.Tool{Hints: test.hints}, Plugin: &plugins.Plugin{Grant: test.grant}}, nil)))
		})
	}
}

// A tool can do what the tools can do that it calls. Its hints limit which ones it calls.
func TestCallsOfOtherTools(t *testing.T) {
	files, grants := fstest.MapFS{}, map[string]plugins.Grant{}
	add := func(name string, hints abi.Hints, grant plugins.Grant) {
		m := plugintest.Manifest(name)
		m.Tools[0].Hints = hints
		files[name+".wasm"], grants[name] = plugin(m), grant
	}
	web := []host.HTTPRule{{URL: "https://example.com/*", Methods: []string{"POST"}, Secret: "key"}}
	add("caller", abi.Hints{}, plugins.Grant{Tools: []string{"caller", "middle"}})
	add("middle", abi.Hints{}, plugins.Grant{Tools: []string{"caller", "post"}})
	add("post", abi.Hints{}, plugins.Grant{HTTP: web})
	add("reader", abi.Hints{Readonly: true, OpenWorld: new(false)}, plugins.Grant{Tools: []string{"post", "quiet"}})
	add("closed", abi.Hints{OpenWorld: new(false)}, plugins.Grant{Tools: []string{abi.EveryTool}})
	add("quiet", abi.Hints{}, plugins.Grant{})
	c := open(t, settings{grants: grants}, files)
	lookup := func(name string) *Tool {
		tool, err := c.Lookup(name)
		require.NoError(t, err)
		return tool
	}

	for name, want := range map[string]wire.Annotations{
		"caller": {Destructive: true, OpenWorld: true}, "reader": {ReadOnly: true, Idempotent: true}, "closed": {Destructive: true}, "quiet": {ReadOnly: true},
	} {
		require.Equal(t, want, c.Annotations(lookup(name)), name)
	}
	for name, want := range map[string]bool{"caller": true, "post": true, "closed": true, "quiet": false} {
		require.Equal(t, want, c.Sends(lookup(name), "key"), name)
		require.False(t, c.Sends(lookup(name), "other"), name)
	}

	admit := func(from, to string) error { return lookup(from).AdmitCallOf(lookup(to), c.Annotations(lookup(to))) }
	require.NoError(t, admit("caller", "post"))
	require.NoError(t, admit("reader", "quiet"))
	require.ErrorContains(t, admit("reader", "post"), "reader is readonly, so it can call readonly tools only, and post is not")
	require.ErrorContains(t, admit("closed", "post"), "closed says open_world: false, so it cannot call post, which reaches the network")
	require.ErrorIs(t, admit("closed", "post"), host.ErrDenied)
}

// Definitions say what a call may use: the operator's limit, the tool's, and never more
// than the operator allows.
func TestDefinitionsHaveLimits(t *testing.T) {
	m := plugintest.Manifest("greedy")
	m.Tools[0].Limits = abi.Limits{TimeoutSeconds: 7200, MemoryBytes: 1 << 20}
	m.Tools[0].Hints.SupportsBackground = true
	files := fstest.MapFS{"greedy.wasm": plugin(m)}
	c := open(t, settings{
		terms: Terms{Limits: Limits{Output: 1 << 10}, Max: Limits{Timeout: time.Hour}}, tools: []gotool.Tool{own("own")},
	}, files)

	limits := map[string]wire.ToolLimits{}
	for _, d := range c.Definitions(c.Tools()) {
		limits[d.Name] = d.Limits
	}
	require.Equal(t, map[string]wire.ToolLimits{
		"greedy": {TimeoutSeconds: 3600, BackgroundSeconds: 300, MemoryBytes: 1 << 20, OutputBytes: 1 << 10, ArgsBytes: MaxArgs},
		"own":    {TimeoutSeconds: 120, BackgroundSeconds: 300, OutputBytes: 1 << 10, ArgsBytes: MaxArgs},
	}, limits)
	require.Equal(t, wire.ToolLimits{TimeoutSeconds: 120, BackgroundSeconds: 300, MemoryBytes: 64 << 20, OutputBytes: 1 << 10, ArgsBytes: MaxArgs}, c.settings().Rules().Usual())

	endless := NewRules(Terms{Limits: Limits{Timeout: shape.NoLimit}})
	require.Zero(t, endless.Usual().TimeoutSeconds, "an absent limit does not apply")
}

// A tool that may make HTTP requests says how large their bodies may be.
func TestDefinitionsHaveTheLimitOfBodies(t *testing.T) {
	m := plugintest.Manifest("fetch")
	files := fstest.MapFS{"fetch.wasm": plugin(m)}
	for most, rules := range map[int64][]host.HTTPRule{
		0:                   nil,
		host.DefaultMaxBody: {{URL: "https://a.example/*"}},
		8 << 20:             {{URL: "https://a.example/*"}, {URL: "https://b.example/*", MaxBody: 8 << 20}},
	} {
		c := open(t, settings{grants: map[string]plugins.Grant{"fetch": {HTTP: rules}}}, files)
		require.Equal(t, most, c.Definitions(c.Tools())[0].Limits.BodyBytes)
	}
}
