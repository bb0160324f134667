package server

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
)

// A plugin whose tools need different things serves those that were granted what they
// need. The others are refused, and that is not a problem.
func TestNeedsOfTools(t *testing.T) {
	m := plugintest.Manifest("shop")
	m.Tools = []abi.Tool{plugintest.Tool("stats"), plugintest.Tool("order")}
	m.Needs = abi.Needs{KV: abi.StoreRead, Optional: &abi.Needs{Random: true}}
	m.Tools[1].Needs = abi.Needs{KV: abi.StoreWrite, Clock: true}
	for i := range m.Tools {
		m.Tools[i].Hints.SupportsBackground = true
	}
	files := fstest.MapFS{"shop.wasm": {Data: plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Echo()}.Wasm()}}
	grant := func(g plugins.Grant) map[string]plugins.Grant { return map[string]plugins.Grant{"shop": g} }
	s := openFolder(t, Config{Grants: grant(plugins.Grant{KV: host.KV{Mode: abi.StoreRead}})}, files)
	offered := func() (names []string) {
		for _, d := range s.Definitions(alice) {
			if d.Plugin == "shop" {
				names = append(names, d.Name)
			}
		}
		return names
	}

	const why = "denied: the tool shop_order needs clock, kv (write), which the operator has not granted"
	require.Equal(t, []string{"shop_stats"}, offered())
	require.JSONEq(t, `{}`, string(s.call(alice, "shop_stats", `{}`).Value))
	require.Equal(t, why, s.refused(alice, "shop_order", `{}`))
	require.Equal(t, why, s.refused(alice, SpawnBackground, `{"tool":"shop_order","args":{}}`))
	require.Empty(t, s.Findings())

	found, _, err := s.Catalog(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"kv (read)", "random (optional)", "clock (tool order)", "kv (write) (tool order)"}, found[0].Needs)
	require.Equal(t, []string{"clock", "kv (write)"}, found[0].Missing)
	require.Empty(t, found[0].Tools[0].Missing)
	require.Equal(t, found[0].Missing, found[0].Tools[1].Missing)

	_, err = s.Reconfigure(t.Context(), func(c *Config) { c.Grants = grant(plugins.Grant{KV: host.KV{Mode: abi.StoreWrite}, Clock: true}) })
	require.NoError(t, err)
	require.Equal(t, []string{"shop_order", "shop_stats"}, offered())
	require.JSONEq(t, `{}`, string(s.call(alice, "shop_order", `{}`).Value))

	_, err = s.Reconfigure(t.Context(), func(c *Config) { c.Grants = grant(plugins.Grant{Clock: true}) })
	require.NoError(t, err)
	require.Empty(t, offered())
	require.Equal(t, "not granted what it needs: kv (read), kv (write)", s.Findings()[0].Error)
}
