package server

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
	"github.com/toolhost/toolhost/server/wire"
)

// Definitions say what a call may use: the operator's limit, the tool's, and never more
// than the operator allows.
func TestDefinitionsHaveLimits(t *testing.T) {
	m := plugintest.Manifest("greedy")
	m.Tools[0].Limits = abi.Limits{TimeoutSeconds: 7200, MemoryBytes: 1 << 20}
	m.Tools[0].Hints.SupportsBackground = true
	files := fstest.MapFS{"greedy.wasm": {Data: plugintest.Plugin{Invoke: plugintest.Do().Echo(), Manifest: m}.Wasm()}}
	s := openFolder(t, Config{
		Limits: Limits{Output: 1 << 10}, MaxLimits: Limits{Timeout: time.Hour}, Tools: []gotool.Tool{handler("own", idle)},
	}, files)

	limits := map[string]wire.ToolLimits{}
	for _, d := range s.Definitions(alice) {
		limits[d.Name] = d.Limits
	}
	require.Equal(t, map[string]wire.ToolLimits{
		"greedy":        {TimeoutSeconds: 3600, BackgroundSeconds: 300, MemoryBytes: 1 << 20, OutputBytes: 1 << 10, ArgsBytes: MaxArgs},
		"own":           {TimeoutSeconds: 120, BackgroundSeconds: 300, OutputBytes: 1 << 10, ArgsBytes: MaxArgs},
		SpawnBackground: {}, CheckBackground: {}, StopBackground: {},
	}, limits)
	require.Equal(t, wire.ToolLimits{TimeoutSeconds: 120, BackgroundSeconds: 300, MemoryBytes: 64 << 20, OutputBytes: 1 << 10, ArgsBytes: MaxArgs}, s.UsualLimits())

	endless := openFolder(t, Config{Limits: Limits{Timeout: NoLimit}}, nil)
	require.Zero(t, endless.UsualLimits().TimeoutSeconds, "an absent limit does not apply")
}

// A tool that may make HTTP requests says how large their bodies may be.
func TestDefinitionsHaveTheLimitOfBodies(t *testing.T) {
	m := plugintest.Manifest("fetch")
	files := fstest.MapFS{"fetch.wasm": {Data: plugintest.Plugin{Invoke: plugintest.Do().Echo(), Manifest: m}.Wasm()}}
	for most, rules := range map[int64][]host.HTTPRule{
		0:                   nil,
		host.DefaultMaxBody: {{URL: "https://a.example/*"}},
		8 << 20:             {{URL: "https://a.example/*"}, {URL: "https://b.example/*", MaxBody: 8 << 20}},
	} {
		s := openFolder(t, Config{Grants: map[string]plugins.Grant{"fetch": {HTTP: rules}}}, files)
		require.Equal(t, most, s.Definitions(alice)[0].Limits.BodyBytes)
	}
}
