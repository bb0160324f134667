package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// binary builds the command as it is released.
func binary(tb testing.TB) string {
	tb.Helper()
	name := filepath.Join(tb.TempDir(), "toolhost")
	out, err := exec.Command("go", "build", "-o", name, ".").CombinedOutput()
	require.NoError(tb, err, string(out))
	return name
}

// process runs the command once, from its start to its end.
func process(tb testing.TB, name, data string, args ...string) (time.Duration, string) {
	tb.Helper()
	cmd := exec.Command(name, append(args, "--data", data)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	started := time.Now()
	err := cmd.Run()
	took := time.Since(started)
	require.NoError(tb, err, errs.String())
	return took, out.String()
}

// report adds the median and the spread of what was measured.
func report(b *testing.B, what string, took []time.Duration) {
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
	b.ReportMetric(ms(took[len(took)/2]), what+"-median-ms")
	b.ReportMetric(ms(took[len(took)*9/10]), what+"-p90-ms")
	b.ReportMetric(ms(took[0]), what+"-min-ms")
}

// folderOf makes a folder of sealed plugins, each with a name and a digest of
// its own: three of four are the examples, which are written in Go, the others are
// small.
func folderOf(tb testing.TB, n int) string {
	tb.Helper()
	examples, err := filepath.Glob(filepath.Join(buildExamples(tb), "*.wasm"))
	require.NoError(tb, err)
	var sources [][]byte
	for _, name := range examples {
		wasm, err := os.ReadFile(name)
		require.NoError(tb, err)
		if bytes.Contains(wasm, []byte(abi.SectionManifest)) {
			sources = append(sources, wasm)
		}
	}
	dir := tb.TempDir()
	old := time.Now().Add(-time.Hour)
	for i := range n {
		name := fmt.Sprintf("plugin%03d", i)
		wasm := plugintest.Plugin{Manifest: plugintest.Manifest(name), Invoke: plugintest.Do().Echo()}.Wasm()
		if i%4 != 0 {
			wasm = renamed(tb, sources[i%len(sources)], name)
		}
		file := filepath.Join(dir, name+".wasm")
		require.NoError(tb, os.WriteFile(file, wasm, 0o600))
		require.NoError(tb, os.Chtimes(file, old, old))
	}
	return dir
}

// renamed is a sealed plugin with another name.
func renamed(tb testing.TB, wasm []byte, name string) []byte {
	m, err := wasmbin.Parse(wasm)
	require.NoError(tb, err)
	for i := range m.Customs {
		if c := &m.Customs[i]; c.Name == abi.SectionManifest {
			var manifest map[string]any
			require.NoError(tb, json.Unmarshal(c.Data, &manifest))
			manifest["name"] = name
			c.Data, err = json.Marshal(manifest)
			require.NoError(tb, err)
		}
	}
	return m.Encode()
}

// BenchmarkList measures toolhost list over 200 sealed plugins, the whole
// process, with the files in the system's cache. Beside it is what it took
// before: every file read, digested and parsed as a whole. The first run ever has
// no digests yet and reads every file too.
func BenchmarkList(b *testing.B) {
	name, dir, data := binary(b), folderOf(b, 200), b.TempDir()
	h, err := host.New(b.Context(), host.Config{})
	require.NoError(b, err)
	defer h.Close(b.Context())
	time.Sleep(3 * time.Second) // files that were changed a moment ago are always read
	first, _ := process(b, name, data, "list", "--plugins", dir)
	var list, whole []time.Duration
	for b.Loop() {
		took, out := process(b, name, data, "list", "--plugins", dir)
		require.GreaterOrEqual(b, strings.Count(out, "\n"), 200)
		list = append(list, took)
		files, err := filepath.Glob(filepath.Join(dir, "*.wasm"))
		require.NoError(b, err)
		started := time.Now()
		for _, file := range files {
			wasm, err := os.ReadFile(file)
			require.NoError(b, err)
			_, err = h.Inspect(wasm)
			require.NoError(b, err)
		}
		whole = append(whole, time.Since(started))
	}
	report(b, "list", list)
	report(b, "whole-files", whole)
	report(b, "first-list", []time.Duration{first})
}

// BenchmarkFirstCall measures the first call of a plugin written in Go, the whole
// process, with a warm compile cache. Beside it is a process that only starts,
// and the call without a cache.
func BenchmarkFirstCall(b *testing.B) {
	name, data, dir := binary(b), b.TempDir(), b.TempDir()
	wasm, err := os.ReadFile(filepath.Join(buildExamples(b), "wordcount.wasm"))
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(filepath.Join(dir, "wordcount.wasm"), wasm, 0o600))
	args := []string{"call", "wordcount", `{"text":"a b"}`, "--plugins", dir}
	cold, _ := process(b, name, data, args...)
	var calls, starts []time.Duration
	for b.Loop() {
		took, out := process(b, name, data, args...)
		require.Contains(b, out, `"words":2`)
		calls = append(calls, took)
		took, _ = process(b, name, data, "--version")
		starts = append(starts, took)
	}
	report(b, "cached-call", calls)
	report(b, "start-only", starts)
	report(b, "call-that-compiles", []time.Duration{cold})
}
