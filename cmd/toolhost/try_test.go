package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
)

// author runs a command on a plugin whose tool has these examples.
func author(t *testing.T, command string, invoke *plugintest.Program, change func(*abi.Manifest), more ...string) (exit int, out, errs string) {
	t.Helper()
	m := plugintest.Manifest("tried")
	change(m)
	dir := t.TempDir()
	file := filepath.Join(dir, "tried.wasm")
	require.NoError(t, os.WriteFile(file, plugintest.Plugin{Manifest: m, Invoke: invoke}.Wasm(), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "testdata", "work"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "testdata", "work", "there"), []byte("x"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other.wasm"), []byte("no plugin"), 0o600))
	t.Setenv("TOOLHOST_DATA", filepath.Join(t.TempDir(), "data"))
	var o, e bytes.Buffer
	exit = run(context.Background(), append([]string{command, file}, more...), strings.NewReader(""), &o, &e)
	return exit, o.String(), e.String()
}

// examples are the examples of the first tool.
func examples(all ...abi.Example) func(*abi.Manifest) {
	return func(m *abi.Manifest) { m.Tools[0].Examples = all }
}

func raw(s string) json.RawMessage { return json.RawMessage(s) }

// TestExamples: what the author of a plugin learns of its examples.
func TestExamples(t *testing.T) {
	for _, c := range []struct {
		name   string
		invoke *plugintest.Program
		change func(*abi.Manifest)
		exit   int
		says   []string
	}{
		{"a result", plugintest.Do().Echo(), examples(abi.Example{Name: "one", Args: raw(`{"a":1.0}`), Result: raw(`{ "a": 1 }`)}), 0, []string{"ok  tried  one", "tried 1.0.0: 1 passed, 0 failed"}},
		{"another result", plugintest.Do().Echo(), examples(abi.Example{Args: raw(`{"a":1}`), Result: raw(`{"a":2}`)}, abi.Example{Args: raw(`{}`), Result: raw(`{}`)}), 1,
			[]string{"FAIL  tried  {\"a\":1}", `expected {"a":2}, found {"a":1}`, "1 passed, 1 failed"}},
		{"an error", plugintest.Do().Say(abi.StreamError, "nobody to greet").Return(1), examples(abi.Example{Args: raw(`{}`), Error: "nobody"}), 0, []string{"1 passed, 0 failed"}},
		{"another error", plugintest.Do().Say(abi.StreamError, "nobody to greet").Return(1), examples(abi.Example{Args: raw(`{}`), Error: "somebody"}), 1,
			[]string{`expected an error with "somebody", found tool_error: nobody to greet`}},
		{"no error", plugintest.Do().Say(abi.StreamResult, "7"), examples(abi.Example{Args: raw(`{}`), Error: "x"}), 1, []string{`expected an error with "x", found the result 7`}},
		{"an error in place of a result", plugintest.Do().Trap(), examples(abi.Example{Args: raw(`{}`), Result: raw(`1`)}), 1, []string{`expected 1, found internal: `, "unreachable"}},
		{"not of its schema", plugintest.Do().Say(abi.StreamResult, "7"), func(m *abi.Manifest) {
			examples(abi.Example{Args: raw(`{}`), Result: raw(`7`)})(m)
			m.Tools[0].OutputSchema = raw(`{"type":"string"}`)
		}, 1, []string{"does not fit its output_schema"}},
		{"arguments that do not fit", plugintest.Do().Echo(), func(m *abi.Manifest) {
			examples(abi.Example{Args: raw(`{"a":1}`), Result: raw(`7`)})(m)
			m.Tools[0].InputSchema = raw(`{"type":"object","properties":{"a":{"type":"string"}}}`)
		}, 1, []string{"/a: expected string, found number"}},
		{"no examples", plugintest.Do().Echo(), examples(), 1, []string{"without an example: tried", "so nothing was tested"}},
		{"a store that begins empty", plugintest.Do().Use("kv.set", `{"key":"a","value":1,"version":0}`), func(m *abi.Manifest) {
			examples(abi.Example{Name: "one", Args: raw(`{}`), Result: raw(`{"version":1}`)}, abi.Example{Name: "two", Args: raw(`{}`), Result: raw(`{"version":1}`)})(m)
			m.Needs.KV = abi.StoreWrite
		}, 0, []string{"2 passed"}},
		{"twice", plugintest.Do().Request("kv.set", `{"key":"a","value":1}`).Create("made").Say(abi.StreamResult, "1"), func(m *abi.Manifest) {
			examples(abi.Example{Args: raw(`{}`), Result: raw(`1`)})(m)
			m.Needs.KV, m.Needs.Files = abi.StoreWrite, []abi.FileNeed{{Path: "/work", Mode: abi.FileWrite}}
			m.Tools[0].Hints.Idempotent = true
		}, 0, []string{"1 passed"}},
		{"what is out of reach", plugintest.Do().Echo(), func(m *abi.Manifest) {
			examples(abi.Example{Args: raw(`{}`), Result: raw(`{}`)})(m)
			m.Needs.HTTP = []abi.HTTPNeed{{URL: "https://example.com/*"}}
		}, 4, []string{"the plugin tried needs http GET", "https://example.com/*"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			exit, out, errs := author(t, "test", c.invoke, c.change)
			require.Equal(t, c.exit, exit, "%s%s", out, errs)
			for _, text := range c.says {
				require.Contains(t, out+errs, text)
			}
			require.NotContains(t, errs, "other.wasm", "only this plugin is looked at")
		})
	}
}

// TestHints: what an idempotent or readonly tool is reproached with.
func TestHints(t *testing.T) {
	before := map[string]string{"/work/a": "1", "/work/b": "2", "kv c": "3"}
	require.Empty(t, changes(before, before))
	require.Equal(t, []string{"/work/d", "kv c", "/work/a"}, changes(before, map[string]string{"/work/b": "2", "kv c": "4", "/work/d": ""}))

	require.Empty(t, repeats(abi.Result{Kind: abi.Success}, nil, nil))
	require.Equal(t, "the tool says idempotent, and its second call fails: tool_error: it exists", repeats(abi.Result{Kind: abi.ToolError, Error: "it exists"}, nil, nil))
	require.Equal(t, "the tool says idempotent, and its second call has changed kv a, /work/b", repeats(abi.Result{Kind: abi.Success}, nil, []string{"kv a", "/work/b"}))
}

// An example that fails may lack the files of a folder.
func TestFoldersWithoutFiles(t *testing.T) {
	_, out, _ := author(t, "test", plugintest.Do().Echo(), func(m *abi.Manifest) {
		m.Needs.Files = []abi.FileNeed{{Path: "/work", Mode: abi.FileRead}, {Path: "/sales", Mode: abi.FileRead}}
		examples(abi.Example{Args: raw(`{"a":1}`), Result: raw(`{"a":2}`)})(m)
	})
	require.Regexp(t, `expected {"a":2}, found {"a":1}\n  /sales was empty: there is no .*testdata.sales\n`, out)
	require.NotContains(t, out, "/work was empty")
}

// TestRehearsalCopies: what a test changes is a copy, and each example has its own.
func TestRehearsalCopies(t *testing.T) {
	m := plugintest.Manifest("tried")
	m.Needs.Files = []abi.FileNeed{{Path: "/work", Mode: abi.FileWrite}}
	dir := t.TempDir()
	file, seed := filepath.Join(dir, "tried.wasm"), filepath.Join(dir, "testdata", "work")
	require.NoError(t, os.WriteFile(file, plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Create("made")}.Wasm(), 0o600))
	require.NoError(t, os.MkdirAll(seed, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(seed, "there"), []byte("x"), 0o600))

	a := &app{ui: ui{out: new(bytes.Buffer), err: new(bytes.Buffer)}}
	t.Setenv("TOOLHOST_DATA", filepath.Join(t.TempDir(), "data"))
	a.environ = os.Environ()
	cmd := a.root()
	require.NoError(t, a.load(cmd.Flags()))
	r, done, err := rehearse(t.Context(), a, file)
	require.NoError(t, err)
	defer done()
	for range 2 {
		session, err := r.reset()
		require.NoError(t, err)
		before, err := r.state(t.Context(), session)
		require.NoError(t, err)
		require.Contains(t, before, "/work/there")
		result, err := r.call(t.Context(), session, r.plugin.Tools[0], []byte(`{}`))
		require.NoError(t, err)
		require.Equal(t, abi.Success, result.Kind, result.Error)
		after, err := r.state(t.Context(), session)
		require.NoError(t, err)
		require.Equal(t, []string{"/work/made"}, changes(before, after))
	}
	require.NoFileExists(t, filepath.Join(seed, "made"))
}

// TestBench: the second time is compared with the first.
func TestBench(t *testing.T) {
	m := plugintest.Manifest("tried")
	examples(abi.Example{Name: "one", Args: raw(`{"a":1}`), Result: raw(`{"a":1}`)}, abi.Example{Args: raw(`{}`), Error: "x"})(m)
	file := filepath.Join(t.TempDir(), "tried.wasm")
	require.NoError(t, os.WriteFile(file, plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Echo()}.Wasm(), 0o600))
	t.Setenv("TOOLHOST_DATA", filepath.Join(t.TempDir(), "data"))

	var found [2]measuredPlugin
	for i := range found {
		var out, errs bytes.Buffer
		require.Zero(t, run(t.Context(), []string{"bench", file, "--calls", "20", "--json"}, strings.NewReader(""), &out, &errs), errs.String())
		require.NoError(t, json.Unmarshal(out.Bytes(), &found[i]), out.String())
		require.Len(t, found[i].Examples, 1, "those with a result")
		one := found[i].Examples[0]
		require.Equal(t, 20, one.Calls)
		require.Positive(t, one.Fuel)
		require.LessOrEqual(t, one.Median, one.P99)
	}
	require.Nil(t, found[0].Examples[0].Last)
	require.Equal(t, found[0].Examples[0].Fuel, found[1].Examples[0].Last.Fuel)
	require.Equal(t, found[0].Examples[0].Median, found[1].Examples[0].Last.Median)

	var out bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"bench", file, "--calls", "1"}, strings.NewReader(""), &out, new(bytes.Buffer)))
	require.Contains(t, out.String(), "tried 1.0.0: 1 call of each example")
	require.Contains(t, out.String(), " (×1.00)", "fuel is the same")

	var errs bytes.Buffer
	require.Equal(t, 2, run(t.Context(), []string{"bench", file, "--calls", "0"}, strings.NewReader(""), &out, &errs))
	require.Contains(t, errs.String(), "--calls: expected at least 1")
}
