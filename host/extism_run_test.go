package host_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

func TestCheckTools(t *testing.T) {
	h, input := newHost(t, nil), ""
	check := func(wasm []byte, tool abi.Tool) error {
		info, err := h.Inspect(wasm)
		require.NoError(t, err)
		return info.CheckTools(&abi.Manifest{Tools: []abi.Tool{tool}})
	}
	plugin, reactor := extismTool().wasm(), guest{}.wasm()

	require.NoError(t, check(plugin, abi.Tool{Name: "tool"}))
	require.NoError(t, check(plugin, abi.Tool{Name: "other", Function: "tool", Input: &input}))
	require.EqualError(t, check(plugin, abi.Tool{Name: "other"}), `bad manifest: /tools/0/function (tool "other"): the plugin exports no function "other" without parameters: it has tool`)
	require.NoError(t, check(reactor, abi.Tool{Name: "tool"}))
	require.ErrorContains(t, check(reactor, abi.Tool{Name: "tool", Function: "f"}), `/tools/0/function (tool "tool"): only a plugin of Extism has it`)
	require.ErrorContains(t, check(reactor, abi.Tool{Name: "tool", Input: &input}), `/tools/0/input (tool "tool"): only a plugin of Extism has it`)
}

// TestExtismInterpreted: an interpreter gives the same.
func TestExtismInterpreted(t *testing.T) {
	h := newHost(t, nil)
	wasm := extismTool(kernel("var_set", text("v"), text("1")), output(kernel("var_get", text("v")))).wasm()
	compiled := do(t.Context(), h, compile(t, h, wasm), host.Call{})
	m, err := h.CompileWith(context.Background(), wasm, host.CompileOptions{Interpret: true})
	require.NoError(t, err)
	interpreted := do(t.Context(), h, m, host.Call{})
	require.Equal(t, string(compiled.Value), string(interpreted.Value))
	require.Equal(t, compiled.Usage.Fuel, interpreted.Usage.Fuel)
}
