package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest/js"
	"github.com/toolhost/toolhost/guest/python"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/fulltest"
)

// vector is one case of abi/testdata; its README says what the fields mean.
type vector struct {
	Name, Why string
	Tool      string
	Args      json.RawMessage
	Big       *struct {
		Text  string
		Count int
	}
	Host struct {
		Session   string
		Attempt   int
		Locale    string
		Config    map[string]string
		Clock     bool
		Values    abi.StoreMode `json:"session_values"`
		KV        abi.StoreMode `json:"kv"`
		Messages  []json.RawMessage
		Tools     map[string]abi.Result
		Secrets   map[string]bool
		StopAfter int `json:"stop_after"`

		Together    int
		Lost        []string
		StopAfterMS int `json:"stop_after_ms"`
	}
	Sandbox bool
	Argv    bool
	Command abi.Command
	Unless  string
	Want    struct {
		Kind           abi.Kind
		Value          json.RawMessage
		Content        []abi.Block
		Error, Summary string
		Connection     *abi.Connection
		ExitCode       *int `json:"exit_code"`
		Stdout, Stderr string
		Progress       []host.Progress
		Logs           []logged
	}
}

type logged struct{ Level, Message string }

func readVectors(t *testing.T, name string) (plugin string, cases []vector) {
	t.Helper()
	data, err := os.ReadFile("../abi/testdata/" + name)
	require.NoError(t, err)
	var file struct {
		Plugin string
		Cases  []vector
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&file))
	require.NotEmpty(t, file.Cases)
	for i := range file.Cases {
		if v := &file.Cases[i]; v.Big != nil {
			v.Want.Value, _ = json.Marshal(strings.Repeat(v.Big.Text, v.Big.Count))
			v.Args, _ = json.Marshal(map[string]json.RawMessage{"value": v.Want.Value})
		}
	}
	return file.Plugin, file.Cases
}

// vectorModules returns the fixtures by their file of cases: those of the SDKs, and
// the modules that TOOLHOST_VECTORS lists, in the form of PATH.
func vectorModules(t *testing.T, h *host.Host) map[string][][]byte {
	t.Helper()
	modules := map[string][][]byte{
		"calls.json": {vectorsPlugin.wasm(t)}, "commands.json": {commandPlugin.wasm(t)},
		"waiting.json": {vectorsPlugin.wasm(t), directPlugin.wasm(t)},
	}
	module, err := os.ReadFile("../guest/js/testdata/vectors.js")
	require.NoError(t, err)
	scripted := [][]byte{js.Plugin(module)}
	if fulltest.Enabled() { // starting Python for each vector takes half a minute
		inPython, err := python.Plugin(os.DirFS("../guest/python/testdata/vectors"))
		require.NoError(t, err)
		scripted = append(scripted, inPython)
	}
	for _, file := range []string{"calls.json", "waiting.json"} {
		modules[file] = append(modules[file], scripted...)
	}
	for _, name := range filepath.SplitList(os.Getenv("TOOLHOST_VECTORS")) {
		wasm, err := os.ReadFile(name)
		require.NoError(t, err)
		info, err := h.Inspect(wasm)
		require.NoError(t, err)
		file := map[host.Shape]string{host.Reactor: "calls.json", host.Command: "commands.json"}[info.Shape]
		modules[file] = append(modules[file], wasm)
		if slices.Contains(info.Exports, abi.ExportResume) {
			modules["waiting.json"] = append(modules["waiting.json"], wasm)
		}
	}
	return modules
}

// TestVectors runs the contract vectors in a sandbox. The guest SDK's tests run
// the same ones natively. Those of plugins that wait continue in a new instance too.
func TestVectors(t *testing.T) {
	var log bytes.Buffer
	h := newHost(t, slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for file, modules := range vectorModules(t, h) {
		plugin, cases := readVectors(t, file)
		for _, wasm := range modules {
			m := compile(t, h, wasm)
			if file == "waiting.json" {
				instances := 0
				for _, v := range cases {
					instances += v.wait(t, wasm)
				}
				require.Equal(t, m.Isolation.Mode == host.Reset, instances > len(cases), "calls continue in new instances")
				continue
			}
			for _, v := range cases {
				if v.Unless == "scripted" && m.Scripted() {
					continue
				}
				t.Run(plugin+" "+v.Name, func(t *testing.T) {
					log.Reset()
					o := do(context.Background(), h, m, v.call(plugin))
					v.check(t, o, logs(t, plugin, log.Bytes()))
				})
			}
		}
	}
}

// call is the call that a vector asks for.
func (v vector) call(plugin string) host.Call {
	stop := make(chan struct{})
	reports := 0
	secrets, rules := vault{}, []host.HTTPRule(nil)
	for name, exists := range v.Host.Secrets {
		rules = append(rules, host.HTTPRule{URL: "https://example.com/*", Secret: name})
		if exists {
			secrets[name] = host.Secret{Value: "placeholder"}
		}
	}

	return host.Call{
		Traits: host.Traits{Plugin: plugin, Argv: v.Argv, Command: v.Command}, Tool: v.Tool, Args: v.Args,
		Session: v.Host.Session, Attempt: v.Host.Attempt, Locale: v.Host.Locale, Stopping: stop,
		Policy: host.Policy{Grant: host.Grant{Clock: v.Host.Clock, Config: v.Host.Config, Session: v.Host.Values, KV: host.KV{Mode: v.Host.KV}, Tools: slices.Collect(maps.Keys(v.Host.Tools)), HTTP: rules}},
		Services: host.Services{Values: &memoryValues{}, KV: &memoryValues{}, Receive: v.receive(), Secrets: secrets,
			CallTool:    func(_ context.Context, t host.ToolCall) (abi.Result, error) { return v.Host.Tools[t.Tool], nil },
			SearchTools: v.search},
		Observers: host.Observers{Progress: func(host.Progress) {
			if reports++; reports == v.Host.StopAfter {
				close(stop)
			}
		}},
	}
}

// search finds the tools of a vector by their names.
func (v vector) search(q host.ToolSearch) abi.FoundTools {
	found := abi.FoundTools{Tools: []abi.FoundTool{}}
	for _, name := range slices.Sorted(maps.Keys(v.Host.Tools)) {
		if strings.Contains(name, q.Query) {
			found.Tools = append(found.Tools, abi.FoundTool{Name: name, Declaration: name + "(args?: Record<string, unknown>): Promise<unknown>"})
		}
	}
	if q.Limit > 0 && len(found.Tools) > q.Limit {
		found.Tools, found.More = found.Tools[:q.Limit], len(found.Tools)-q.Limit
	}
	return found
}

func (v vector) check(t *testing.T, o outcome, logs []logged) {
	want := v.Want
	require.Equal(t, want.Kind, o.Kind, "%s: %v", o.Error, o.err)
	if want.Value == nil {
		require.Nil(t, o.Value)
	} else {
		require.JSONEq(t, string(want.Value), string(o.Value))
	}
	require.Equal(t, want.Content, o.Content)
	require.Equal(t, want.Summary, o.Summary)
	require.Equal(t, want.Connection, o.Connection)
	require.Equal(t, want.ExitCode, o.ExitCode)
	require.Equal(t, want.Stdout, o.stdout)
	require.Equal(t, want.Progress, o.progress)
	if want.Kind == abi.ToolError {
		require.Equal(t, want.Error, o.Error)
	}
	if want.Kind != abi.Internal {
		require.Equal(t, want.Stderr, o.stderr)
		require.Equal(t, want.Logs, logs)
	}
}

// logs reads what was logged as JSON.
func logs(t *testing.T, plugin string, data []byte) (all []logged) {
	t.Helper()
	for line := range slices.Values(bytes.Split(bytes.TrimSpace(data), []byte("\n"))) {
		if len(line) == 0 {
			continue
		}
		var record struct{ Level, Msg string }
		require.NoError(t, json.Unmarshal(line, &record))
		if text, own := strings.CutPrefix(record.Msg, plugin+" | "); own { // else the host says it
			all = append(all, logged{strings.ToLower(record.Level), text})
		}
	}
	return all
}

// The fixture's manifest comes from its own describe, as that of a plugin that
// is not sealed.
func TestVectorsManifest(t *testing.T) {
	h := newHost(t, nil)
	manifest, err := h.Describe(context.Background(), vectorsPlugin.wasm(t))
	require.NoError(t, err)
	decoded, err := abi.DecodeManifest(manifest)
	require.NoError(t, err)
	plugin, cases := readVectors(t, "calls.json")
	require.Equal(t, plugin, decoded.Name)
	for _, v := range cases {
		require.True(t, slices.ContainsFunc(decoded.Tools, func(tool abi.Tool) bool { return tool.Name == v.Tool }), v.Tool)
	}
}

// receive returns the service of a case's messages, nil for none.
func (v vector) receive() host.Receive {
	if v.Host.Messages == nil {
		return nil
	}
	return func(_ context.Context, after int64, _ time.Duration) (found []host.Message, _ error) {
		for i, data := range v.Host.Messages {
			if id := int64(i) + 1; id > after {
				found = append(found, host.Message{ID: id, Data: data})
			}
		}
		return found, nil
	}
}
