package host_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/fuel"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// hostedTool is a plugin that imports a function of its host in place of log_trace, which
// it calls as number 21.
func hostedTool(module, name, params, results string, body ...code) extismGuest {
	g := extismTool(body...)
	g.change = func(m *wasmbin.Module) {
		m.Imports[21] = wasmbin.Import{Module: module, Name: name, Type: uint32(len(m.Types))}
		m.Types = append(m.Types, wasmbin.FuncType{Params: sig(params, false).Params, Results: sig(results, false).Params})
	}
	return g
}

// answers is a request whose tool "other" answers as given, and notes its arguments.
func answers(r abi.Result, args *string) host.Call {
	return host.Call{
		Policy: host.Policy{Grant: host.Grant{Tools: []string{"other"}}},
		Traits: host.Traits{Plugin: "guest", HostFunctions: map[string]string{"extism:host/user.lookup": "other", "host.now": "other"}},
		Services: host.Services{CallTool: func(_ context.Context, t host.ToolCall) (abi.Result, error) {
			*args = t.Tool + string(t.Args)
			return r, nil
		}},
	}
}

func TestHostFunctions(t *testing.T) {
	lookup := func(input string) extismGuest {
		return hostedTool("extism:host/user", "lookup", "l", "l", output(seq(text(input), call(21))))
	}
	success := abi.Result{Kind: abi.Success, Value: []byte(`{"a":1}`)}
	for name, c := range map[string]struct {
		guest      extismGuest
		result     abi.Result
		args, want string
	}{
		"JSON":            {lookup(`{"b": 2}`), success, `other{"b":2}`, `{"a":1}`},
		"a text":          {lookup(`what`), abi.Result{Kind: abi.Success, Value: []byte(`"that"`)}, `other{"input":"what"}`, `"that"`},
		"content":         {lookup(`[]`), abi.Result{Kind: abi.Success, Content: []abi.Block{{Type: "text", Text: "seen"}}}, `other{"input":"[]"}`, `"seen"`},
		"no parameter":    {hostedTool("host", "now", "", "l", output(call(21))), success, `other{}`, `{"a":1}`},
		"no result":       {hostedTool("host", "now", "l", "", text("x"), call(21), output(text("done"))), success, `other{"input":"x"}`, `"done"`},
		"a missing block": {hostedTool("host", "now", "l", "l", output(seq(i64(77), call(21)))), success, `other{"input":""}`, `{"a":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			var args string
			o := callExtism(t, c.guest, answers(c.result, &args))
			require.NoError(t, o.err)
			require.Equal(t, c.want, string(o.Value), o.Error)
			require.Equal(t, c.args, args)
		})
	}

	var args string
	o := callExtism(t, lookup("x"), answers(abi.Result{Kind: abi.ToolError, Error: "there is none"}, &args))
	require.NoError(t, o.err)
	require.Equal(t, abi.ToolError, o.Kind)
	require.Equal(t, "the tool other failed: there is none", o.Error)

	req := answers(success, &args)
	req.Policy.Tools = nil
	o = callExtism(t, lookup("x"), req)
	require.NoError(t, o.err)
	require.Equal(t, abi.ToolError, o.Kind, "the tool is not granted")

	req = answers(success, &args)
	req.HostFunctions = nil
	o = callExtism(t, lookup("x"), req)
	require.ErrorIs(t, o.err, host.ErrABI)
	require.ErrorContains(t, o.err, "name a tool that is called in its place")
}

// TestHostFunctionsOfMany: plugins of one host import the same function with other types,
// and none sees that of another.
func TestHostFunctionsOfMany(t *testing.T) {
	h := newHost(t, nil)
	var args string
	with := compile(t, h, hostedTool("host", "now", "", "l", output(call(21))).wasm())
	without := compile(t, h, hostedTool("host", "now", "l", "", text("x"), call(21)).wasm())
	for range 2 {
		for _, m := range []*host.Module{with, without} {
			o := do(t.Context(), h, m, answers(abi.Result{Kind: abi.Success, Value: []byte(`1`)}, &args))
			require.NoError(t, o.err)
		}
	}
	require.NoError(t, with.Close(t.Context()))
	o := do(t.Context(), h, without, answers(abi.Result{Kind: abi.Success, Value: []byte(`1`)}, &args))
	require.NoError(t, o.err)
}

// TestHostFunctionsOfTheHost: nobody takes the place of the meter.
func TestHostFunctionsOfTheHost(t *testing.T) {
	for _, module := range []string{fuel.ImportModule, abi.Version, "toolhost_v2", abi.ImportWASI, extismModule} {
		_, err := newHost(t, nil).Compile(t.Context(), hostedTool(module, fuel.ImportName, "l", "l").wasm())
		require.ErrorIs(t, err, host.ErrABI)
		require.ErrorContains(t, err, `import "`+module+"."+fuel.ImportName)
	}
}

func TestHostFunctionsOfManifests(t *testing.T) {
	h := newHost(t, nil)
	check := func(g extismGuest, functions map[string]string) error {
		info, err := h.Inspect(g.wasm())
		require.NoError(t, err)
		return info.CheckTools(&abi.Manifest{Tools: []abi.Tool{{Name: "tool"}}, HostFunctions: functions})
	}
	lookup := hostedTool("extism:host/user", "lookup", "l", "l")

	require.NoError(t, check(lookup, map[string]string{"extism:host/user.lookup": "other"}))
	require.ErrorContains(t, check(lookup, nil), `/host_functions: the plugin imports extism:host/user.lookup, a function of the host that it was built for: name a tool that is called in its place, as in host_functions: {"extism:host/user.lookup": TOOL}`)
	require.ErrorContains(t, check(extismTool(), map[string]string{"host.x": "other"}), `/host_functions: the plugin does not import "host.x"`)
	require.NoError(t, check(hostedTool("extism:host/user", "list_roots", "", "l"), nil), "one that the host has")
}
