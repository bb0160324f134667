package plugins

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
)

func TestCheckArgsAndResult(t *testing.T) {
	m := named("p", "typed", "open")
	m.Tools[0].InputSchema = []byte(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`)
	m.Tools[0].OutputSchema = []byte(`{"type":"array"}`)
	r := open(t, map[string][]byte{"p.wasm": sealed(m)})
	opened, typed := r.Tools()[0], r.Tools()[1]

	require.Empty(t, typed.CheckArgs([]byte(`{"n":1}`)))
	require.Equal(t, []abi.Problem{{Pointer: "/n", Message: "expected integer, found string"}}, typed.CheckArgs([]byte(`{"n":"1"}`)))
	require.Equal(t, []abi.Problem{{Message: "missing: n"}, {Message: "unknown field: m"}}, typed.CheckArgs([]byte(`{"m":1}`)))
	require.Len(t, typed.CheckArgs([]byte(`{`)), 1)

	require.Empty(t, typed.CheckResult([]byte(`[]`)))
	require.Equal(t, []abi.Problem{{Message: "expected array, found object"}}, typed.CheckResult([]byte(`{}`)))
	require.Equal(t, []abi.Problem{{Message: "expected array, found null"}}, typed.CheckResult(nil), "no result at all")
	require.Empty(t, opened.CheckResult(nil), "no schema, no demands")
}

// TestDefaults: what a schema says of missing arguments reaches the tool, and results
// are left as they are.
func TestDefaults(t *testing.T) {
	m := named("p")
	m.Tools[0].InputSchema = []byte(`{"type":"object","required":["n"],"properties":{"n":{"type":"integer","default":3},"to":{"type":"object","properties":{"unit":{"default":"C"}}}}}`)
	m.Tools[0].OutputSchema = m.Tools[0].InputSchema
	tool := open(t, map[string][]byte{"p.wasm": sealed(m)}).Tools()[0]
	for args, want := range map[string]string{
		``:                   `{"n":3}`,
		`{"to":{}}`:          `{"to":{"unit":"C"},"n":3}`,
		`{"n":1, "to":null}`: `{"n":1,"to":null}`,
	} {
		r, err := tool.Call(t.Context(), host.Call{Args: []byte(args)})
		require.NoError(t, err)
		require.Equal(t, want, string(r.Value))
	}
	require.Empty(t, tool.CheckArgs([]byte(`{}`)))
	require.Equal(t, []abi.Problem{{Message: "missing: n"}}, tool.CheckResult([]byte(`{}`)))
}

// A plugin is compiled by its first call, once, however many calls come first.
func TestCompileOnce(t *testing.T) {
	files := fstest.MapFS{"p.wasm": {Data: sealed(named("p"))}}
	counted := &countedFS{MapFS: files}
	r := openWith(t, newHost(t), Config{Folders: []Folder{{Path: "plugins", FS: counted}}})
	require.Equal(t, 1, counted.reads, "once to see what it is")
	require.Nil(t, r.Plugins()[0].module)

	var callers sync.WaitGroup
	results := make([]abi.Result, 16)
	errs := make([]error, len(results))
	for i := range results {
		callers.Go(func() {
			results[i], errs[i] = r.Tools()[0].Call(context.Background(), host.Call{Args: []byte(strconv.Itoa(i))})
		})
	}

	callers.Wait()
	for i, result := range results {
		require.NoError(t, errs[i])
		require.Equal(t, strconv.Itoa(i), string(result.Value))
	}

	require.Equal(t, 2, counted.reads, "and once to compile it")
}

// What is called is what was loaded: a file that was replaced meanwhile is not
// taken for it.
func TestFileChangedAfterLoad(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "p.wasm")
	original := sealed(named("p"))
	require.NoError(t, os.WriteFile(file, original, 0o600))
	r := openWith(t, newHost(t), Config{Folders: []Folder{Dir(dir)}})
	call := func() error {
		result, err := r.Tools()[0].Call(t.Context(), host.Call{})
		if err != nil {
			require.Equal(t, abi.Result{Kind: abi.Internal, Error: abi.InternalMessage}, result, "an agent is not told of files")
		}
		return err
	}
	for _, test := range []struct {
		name string
		file []byte
		want string
	}{
		{"replaced", plugintest.Plugin{Manifest: named("p"), Invoke: plugintest.Do().Trap()}.Wasm(), "the file has changed since it was loaded: reload the plugins"},
		{"broken", original[:len(original)/2], "the file has changed since it was loaded: reload the plugins"},
		{"gone", nil, "no such file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(file, test.file, 0o600))
			if test.file == nil {
				require.NoError(t, os.Remove(file))
			}
			err := call()
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, file)
			var where *host.CallError
			require.ErrorAs(t, err, &where)
			require.Equal(t, "p", where.Plugin)
		})
	}

	require.NoError(t, os.WriteFile(file, original, 0o600))
	require.NoError(t, call(), "the failure was not kept")
	require.NoError(t, os.Remove(file))
	require.NoError(t, call(), "what is compiled needs no file")
}

// Errors distinguish plugins from their tools.
func TestCallNamesPluginAndTool(t *testing.T) {
	r := open(t, map[string][]byte{
		"p.wasm": plugintest.Plugin{Manifest: named("p", "boom"), Invoke: plugintest.Do().Trap()}.Wasm(),
	})
	_, err := r.Tools()[0].Call(t.Context(), host.Call{Traits: host.Traits{Plugin: "another"}, Tool: "another"})
	require.ErrorIs(t, err, host.ErrTrap)
	require.ErrorContains(t, err, "p_boom: the plugin crashed: unreachable")
}

func TestClose(t *testing.T) {
	h := newHost(t)
	r, err := Open(t.Context(), h, Config{Folders: []Folder{folder(map[string][]byte{
		"called.wasm": sealed(named("called")), "never.wasm": sealed(named("never")),
	})}})
	require.NoError(t, err)
	_, err = r.Tools()[0].Call(t.Context(), host.Call{})
	require.NoError(t, err)
	require.NoError(t, r.Close(t.Context()))
	require.NoError(t, r.Close(t.Context()), "twice is once")
}
