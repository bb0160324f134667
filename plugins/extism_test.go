package plugins

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// extismPlugin is a plugin of Extism whose functions write a text each: in the memory of
// the kernel, byte by byte.
func extismPlugin(texts map[string]string) []byte {
	i32, i64 := wasmbin.I32, wasmbin.I64
	m := &wasmbin.Module{Memories: []wasmbin.Limits{{Min: 1}}, Exports: []wasmbin.Export{{Name: abi.ExportMemory, Kind: wasmbin.KindMemory}}}
	for _, f := range []struct {
		name            string
		params, results []wasmbin.ValType
	}{
		{"alloc", []wasmbin.ValType{i64}, []wasmbin.ValType{i64}}, {"store_u8", []wasmbin.ValType{i64, i32}, nil}, {"output_set", []wasmbin.ValType{i64, i64}, nil},
	} {
		m.Imports = append(m.Imports, wasmbin.Import{Module: "extism:host/env", Name: f.name, Type: uint32(len(m.Types))})
		m.Types = append(m.Types, wasmbin.FuncType{Params: f.params, Results: f.results})
	}
	m.Types = append(m.Types, wasmbin.FuncType{Results: []wasmbin.ValType{i32}})

	constant := func(c []byte, op wasmbin.Op, n int) []byte {
		return wasmbin.AppendS64(wasmbin.AppendOp(c, op), int64(n))
	}
	for name, text := range texts {
		var c []byte
		c = wasmbin.AppendOpX(wasmbin.AppendOpX(constant(c, wasmbin.OpI64Const, len(text)), wasmbin.OpCall, 0), wasmbin.OpLocalSet, 0)
		for i := range len(text) {
			c = wasmbin.AppendOp(constant(wasmbin.AppendOpX(c, wasmbin.OpLocalGet, 0), wasmbin.OpI64Const, i), wasmbin.OpI64Add)
			c = wasmbin.AppendOpX(constant(c, wasmbin.OpI32Const, int(text[i])), wasmbin.OpCall, 1)
		}
		c = wasmbin.AppendOpX(constant(wasmbin.AppendOpX(c, wasmbin.OpLocalGet, 0), wasmbin.OpI64Const, len(text)), wasmbin.OpCall, 2)
		c = wasmbin.AppendOp(constant(c, wasmbin.OpI32Const, 0), wasmbin.OpEnd)

		m.Exports = append(m.Exports, wasmbin.Export{Name: name, Index: uint32(len(m.Imports) + len(m.Codes))})
		m.Functions = append(m.Functions, 3)
		m.Codes = append(m.Codes, wasmbin.Code{Locals: []wasmbin.LocalGroup{{Count: 1, Type: i64}}, Body: c})
	}
	return m.Encode()
}

func TestExtismSidecar(t *testing.T) {
	plugin := extismPlugin(map[string]string{"sayHello": "hello"})
	sidecar := `{abi: toolhost_v1, name: hello, version: 1.0.0, description: Says hello., tools: [{name: hello, description: Says hello., input_schema: {type: object}, function: sayHello}]}`
	r := open(t, map[string][]byte{"hello.wasm": plugin, "hello.toolhost.yaml": []byte(sidecar)})
	require.Empty(t, problems(r))
	tool, err := r.Lookup("hello")
	require.NoError(t, err)
	result, err := tool.Call(t.Context(), host.Call{})
	require.NoError(t, err)
	require.Equal(t, `"hello"`, string(result.Value))

	r = open(t, map[string][]byte{"hello.wasm": plugin})
	require.Equal(t, []string{"plugins/hello.wasm: " + host.ErrNoManifest.Error() + "; a plugin of Extism says in its manifest which of its functions are tools: it has sayHello"}, problems(r))

	r = open(t, map[string][]byte{"hello.wasm": plugin, "hello.toolhost.json": sealedJSON("hello")})
	require.Equal(t, []string{`plugins/hello.wasm: hello.toolhost.json: bad manifest: /tools/0/function (tool "hello"): the plugin exports no function "hello" without parameters: it has sayHello`}, problems(r))
}

func sealedJSON(name string) []byte {
	return []byte(`{"abi":"toolhost_v1","name":"` + name + `","version":"1.0.0","description":"Says.","tools":[{"name":"` + name + `","description":"Says.","input_schema":{"type":"object"}}]}`)
}

// TestHyperMCP: a plugin of hyper-mcp has a manifest of its own, under the name of its
// file. A sidecar takes its place.
func TestHyperMCP(t *testing.T) {
	plugin := extismPlugin(map[string]string{
		"describe": `{"tools":[{"name":"qr-code","description":"Draws.","inputSchema":{"type":"object","properties":{"data":{"type":"string"}},"required":["data"]}},{"name":"Erase","inputSchema":null}]}`,
		"call":     `{"content":[{"type":"text","text":"done"}]}`,
	})
	cache := t.TempDir()
	for range 2 { // the second time from the cache
		r := openWith(t, newHost(t), Config{Folders: []Folder{folder(map[string][]byte{"draw-it.wasm": plugin})}, CacheDir: cache})
		require.Empty(t, problems(r))
		require.Equal(t, []string{"draw_it_erase", "draw_it_qr_code"}, toolNames(r))
		tool, _ := r.Lookup("draw_it_qr_code")
		require.Equal(t, "hyper-mcp v1", tool.Plugin.Source)
		require.Equal(t, "qr-code", tool.MCPTool)
		result, err := tool.Call(t.Context(), host.Call{Args: []byte(`{"data":"x"}`)})
		require.NoError(t, err)
		require.Equal(t, `"done"`, string(result.Value))

		require.NotEmpty(t, tool.CheckArgs([]byte(`{}`)))
	}

	sidecar := `{abi: toolhost_v1, name: draw, version: 1.0.0, description: Draws., tools: [{name: draw, description: Draws., input_schema: {type: object}, mcp_tool: qr-code, hints: {readonly: true}}], needs: {clock: true}}`
	r := open(t, map[string][]byte{"draw-it.wasm": plugin, "draw-it.toolhost.yaml": []byte(sidecar)})
	require.Equal(t, []string{"draw"}, toolNames(r))

	r = open(t, map[string][]byte{"hello.wasm": extismPlugin(map[string]string{"describe": "{}", "call": ""})})
	require.Contains(t, problems(r)[0], "expected 1 to 128 tools, found 0")
	r = open(t, map[string][]byte{"hello.wasm": extismPlugin(map[string]string{"list_tools": "", "call_tool": ""})})
	require.Contains(t, problems(r)[0], "the list of its tools")
}
