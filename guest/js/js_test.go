package js_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest/js"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
)

func newHost(t testing.TB, log *bytes.Buffer) *host.Host {
	t.Helper()
	h, err := host.New(context.Background(), host.Config{CacheDir: plugintest.CacheDir(), Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
	return h
}

func compile(t testing.TB, h *host.Host, file string) *host.Module {
	t.Helper()
	module, err := os.ReadFile(file)
	require.NoError(t, err)
	m, err := h.Compile(context.Background(), js.Plugin(module))
	require.NoError(t, err)
	return m
}

// TestWorld: what tools find does what it does elsewhere. The vectors of abi/testdata are
// run by the tests of package host.
func TestWorld(t *testing.T) {
	h := newHost(t, new(bytes.Buffer))
	m := compile(t, h, "testdata/world.js")
	for range 2 { // also from the snapshot
		r, err := h.Call(context.Background(), m, host.Call{
			Tool: "world", Session: "session-1", Policy: host.Policy{Grant: host.Grant{Env: map[string]string{"A": "b=c"}}},
		})
		require.NoError(t, err)
		require.Equal(t, abi.Success, r.Kind, r.Error)
		require.JSONEq(t, "[]", string(r.Value))
		require.Positive(t, r.Usage.StartupFuel)
		require.Less(t, r.Usage.StartupFuel, r.Usage.Fuel)
	}
	require.Equal(t, host.Reset, m.Isolation.Mode)
	require.Equal(t, int64(1), m.Stats().Started, m.Stats().Startup)
}

// TestFiles: what of node:fs/promises there is does what it does in Node, and no path
// leads out of what is granted.
func TestFiles(t *testing.T) {
	h := newHost(t, new(bytes.Buffer))
	module, err := os.ReadFile("testdata/files.js")
	require.NoError(t, err)
	m, err := h.Compile(context.Background(), js.Plugin(append([]byte(js.Files), module...)))
	require.NoError(t, err)

	dir, read := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/secret", []byte("s"), 0o600))
	require.NoError(t, os.Mkdir(dir+"/work", 0o700))
	require.NoError(t, os.Symlink("../secret", dir+"/work/link"))
	require.NoError(t, os.WriteFile(read+"/only", []byte("only"), 0o600))
	for range 2 { // also from the snapshot
		r, err := h.Call(context.Background(), m, host.Call{Tool: "work", Policy: host.Policy{Grant: host.Grant{Files: []host.Mount{
			{Dir: dir + "/work", Path: "/work", Mode: abi.FileWrite}, {Dir: read, Path: "/read"},
		}}}})
		require.NoError(t, err)
		require.Equal(t, abi.Success, r.Kind, r.Error)
		require.JSONEq(t, "[]", string(r.Value))
		secret, err := os.ReadFile(dir + "/secret")
		require.NoError(t, err)
		require.Equal(t, "s", string(secret))
	}
	require.Equal(t, host.Reset, m.Isolation.Mode)
	require.Equal(t, int64(1), m.Stats().Started, m.Stats().Startup)
}

// TestOutcomes: exceptions are tool errors with their type and message, and the operator
// gets their stack.
func TestOutcomes(t *testing.T) {
	var log bytes.Buffer
	h := newHost(t, &log)
	m := compile(t, h, "testdata/world.js")
	for tool, c := range map[string]struct {
		args, value, err, log string
		kind                  abi.Kind
	}{
		"broken":    {kind: abi.ToolError, err: "TypeError: not a number", log: `level=ERROR msg="p | TypeError: not a number\n    at trouble (tool.js:`},
		"unhandled": {kind: abi.Success, value: "1", log: "not handled: Error: nobody handles it"},
		"endless":   {kind: abi.ToolError, err: "RangeError: Maximum call stack size exceeded", log: "RangeError"},
		"memory":    {kind: abi.ToolError, err: "InternalError: out of memory", log: "InternalError"},
		"missing":   {kind: abi.ToolError, err: "Error: the module has no tool missing", log: "has no tool"},
	} {
		t.Run(tool, func(t *testing.T) {
			log.Reset()
			r, _ := h.Call(context.Background(), m, host.Call{Tool: tool, Traits: host.Traits{Plugin: "p"}, Policy: host.Policy{Fuel: 20_000_000_000}})
			require.Equal(t, c.kind, r.Kind, r.Error)
			require.Equal(t, c.err, r.Error)
			require.Equal(t, c.value, string(r.Value))
			require.Contains(t, log.String(), c.log)
		})
	}

	for kind, want := range map[string]abi.Result{
		"map": {Kind: abi.Success, Value: []byte(`{"a":[1]}`)}, "date": {Kind: abi.Success, Value: []byte(`"1970-01-01T00:00:00.000Z"`)},
		"promise":  {Kind: abi.ToolError, Error: "TypeError: the result has a promise: await it"},
		"function": {Kind: abi.ToolError, Error: "TypeError: the tool returned a function, which has no JSON"},
		"bigint":   {Kind: abi.ToolError},
	} {
		t.Run(kind, func(t *testing.T) {
			r, err := h.Call(context.Background(), m, host.Call{Tool: "result", Args: []byte(`{"kind":"` + kind + `"}`)})
			require.NoError(t, err)
			require.Equal(t, want.Kind, r.Kind)
			require.Equal(t, string(want.Value), string(r.Value))
			if want.Error != "" {
				require.Equal(t, want.Error, r.Error)
			}
		})
	}
}

// TestDescribe: a module says what it is, or why it cannot.
func TestDescribe(t *testing.T) {
	const use = "const { tool } = globalThis.toolhost; export const plugin = { name: 'p', description: 'P', needs: { clock: true } };"
	for name, c := range map[string]struct{ module, want, err string }{
		"a shape": {module: use + `export const a = tool({ description: 'A', input: { text: 'string', 'n?': { type: 'integer' } }, readonly: true, openWorld: false, title: 'T' }, () => {});`,
			want: `{"abi":"toolhost_v1","name":"p","description":"P","version":"1.0.0","needs":{"clock":true},"tools":[{"name":"a","title":"T","description":"A","hints":{"readonly":true,"open_world":false},
				"input_schema":{"type":"object","properties":{"text":{"type":"string"},"n":{"type":"integer"}},"required":["text"],"additionalProperties":false}}]}`},
		"a standard schema": {module: use + `export const a = tool({ name: 'b', description: 'A', input: { '~standard': { vendor: 'x', jsonSchema: { input: () => ({ $schema: 's', type: 'object' }) } } } }, () => {});`,
			want: `{"abi":"toolhost_v1","name":"p","description":"P","version":"1.0.0","needs":{"clock":true},"tools":[{"name":"b","description":"A","input_schema":{"type":"object"}}]}`},
		"after an await": {module: use + `await null; export const a = tool({ description: 'A' }, () => {});`, want: `{"abi":"toolhost_v1","name":"p","description":"P","version":"1.0.0","needs":{"clock":true},"tools":[{"name":"a","description":"A","input_schema":{"type":"object","properties":{},"additionalProperties":false}}]}`},
		"needs": {module: use + `export const a = tool({ description: 'A', input: { type: 'object' }, needs: { kv: 'write', optional: { ask: true } } }, () => {});`,
			want: `{"abi":"toolhost_v1","name":"p","description":"P","version":"1.0.0","needs":{"clock":true},"tools":[{"name":"a","description":"A","input_schema":{"type":"object"},"needs":{"kv":"write","optional":{"ask":true}}}]}`},
		"no tool":                   {module: use, err: "the module exports no tool"},
		"no name":                   {module: "export const a = globalThis.toolhost.tool({ description: 'A' }, () => {});", err: "the module does not say its name"},
		"no JavaScript":             {module: "export const = 1", err: "SyntaxError"},
		"throws":                    {module: "null.x", err: "TypeError"},
		"rejects":                   {module: "await Promise.reject(new RangeError('late'))", err: "RangeError: late"},
		"never ready":               {module: use + "await new Promise(() => {}); export const a = tool({ description: 'A' }, () => {});", err: "the module waits while it starts up"},
		"an old schema":             {module: use + `export const a = tool({ description: 'A', input: { '~standard': { vendor: 'zod' } } }, () => {});`, err: "this version of zod has no JSON Schema"},
		"a tool without a function": {module: use + `export const a = tool({ description: 'A' });`, err: "tool takes what describes the tool, and a function"},
	} {
		t.Run(name, func(t *testing.T) {
			manifest, err := newHost(t, new(bytes.Buffer)).Describe(context.Background(), js.Plugin([]byte(c.module)))
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(manifest))
			_, err = abi.DecodeManifest(manifest)
			require.NoError(t, err)
		})
	}
}

// TestHas: a tool asks for what it can work without.
func TestHas(t *testing.T) {
	const module = `const { tool } = globalThis.toolhost; export const plugin = { name: 'p', description: 'P' };
		export const a = tool({ description: 'A', needs: { optional: { kv: 'write' } } }, async (_, call) => [await call.has({ kv: 'write' }), await call.has({ kv: 'read' }), await call.has({})]);`
	h := newHost(t, new(bytes.Buffer))
	m, err := h.Compile(context.Background(), js.Plugin([]byte(module)))
	require.NoError(t, err)

	for mode, want := range map[abi.StoreMode]string{"": "[false,false,true]", abi.StoreRead: "[false,true,true]", abi.StoreWrite: "[true,true,true]"} {
		r, err := h.Call(context.Background(), m, host.Call{Tool: "a", Policy: host.Policy{Grant: host.Grant{KV: host.KV{Mode: mode}}}})
		require.NoError(t, err)
		require.Equal(t, want, string(r.Value), r.Error)
	}
}
