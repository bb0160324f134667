// Package tools_test builds the plugins of this folder, and calls them in the sandbox
// under the default limits of a host. The tests of each folder run natively.
package tools_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"image"
	"image/png"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/examples/pluginbuild"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
)

// loaded is a plugin, and what its calls are granted.
type loaded struct {
	host     *host.Host
	module   *host.Module
	manifest *abi.Manifest
	policy   host.Policy
}

func load(t *testing.T, name string) *loaded {
	t.Helper()
	h, err := host.New(t.Context(), host.Config{CacheDir: plugintest.CacheDir(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })

	out := t.TempDir()
	require.NoError(t, pluginbuild.Build(t.Context(), h, pluginbuild.Source{Name: name, Dir: name}, out))
	wasm, err := os.ReadFile(filepath.Join(out, name+".wasm"))
	require.NoError(t, err)
	info, err := h.Inspect(wasm)
	require.NoError(t, err)
	manifest, err := abi.DecodeManifest(info.Manifest)
	require.NoError(t, err)
	m, err := h.Compile(t.Context(), wasm)
	require.NoError(t, err)
	return &loaded{host: h, module: m, manifest: manifest}
}

// grant grants a new folder as /work.
func (l *loaded) grant(t *testing.T, mode abi.FileMode) (dir string) {
	dir = t.TempDir()
	l.policy.Files = []host.Mount{{Dir: dir, Path: "/work", Mode: mode}}
	return dir
}

type object = map[string]any

// call calls a tool as a server does: with the memory that it asks for.
func (l *loaded) call(t *testing.T, tool string, args object) (abi.Result, error) {
	t.Helper()
	data, err := json.Marshal(args)
	require.NoError(t, err)
	policy := l.policy
	for _, declared := range l.manifest.Tools {
		if declared.Name == tool {
			policy.Memory = declared.Limits.MemoryBytes
		}
	}
	return l.host.Call(t.Context(), l.module, host.Call{Traits: host.Traits{Plugin: l.manifest.Name}, Tool: tool, Args: data, Policy: policy})
}

// value requires that a call succeeds, with that value as JSON.
func (l *loaded) value(t *testing.T, tool string, args object, want string) {
	t.Helper()
	r, err := l.call(t, tool, args)
	require.NoError(t, err)
	require.Equal(t, abi.Success, r.Kind, r.Error)
	require.JSONEq(t, want, string(r.Value))
}

// problem requires that a call ends with an error of the tool.
func (l *loaded) problem(t *testing.T, tool string, args object, text string) {
	t.Helper()
	r, err := l.call(t, tool, args)
	require.NoError(t, err)
	require.Equal(t, abi.ToolError, r.Kind)
	require.Contains(t, r.Error, text)
}

// limit requires that a limit ends a call.
func (l *loaded) limit(t *testing.T, tool string, args object, reason error) {
	t.Helper()
	_, err := l.call(t, tool, args)
	require.ErrorIs(t, err, reason)
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

// TestExamples: each example of a manifest answers in the sandbox as it says.
func TestExamples(t *testing.T) {
	sources, err := pluginbuild.Sources(".")
	require.NoError(t, err)
	require.NotEmpty(t, sources)
	for _, s := range sources {
		t.Run(s.Name, func(t *testing.T) {
			l := load(t, s.Name)
			l.grant(t, abi.FileWrite)
			for _, tool := range l.manifest.Tools {
				for _, e := range tool.Examples {
					var args object
					require.NoError(t, json.Unmarshal(e.Args, &args))
					if e.Error != "" {
						l.problem(t, tool.Name, args, e.Error)
						continue
					}
					l.value(t, tool.Name, args, string(e.Result))
				}
			}
		})
	}
}

func TestJSON(t *testing.T) {
	l := load(t, "json")
	l.problem(t, "query", object{"query": ".", "file": "a.json", "limit": 9}, "no folder is granted as /work")
	dir := l.grant(t, abi.FileRead)
	write(t, dir, "a.json", `{"n":[1,2,3]}`)
	require.NoError(t, os.Symlink("/etc/hostname", filepath.Join(dir, "link")))
	l.value(t, "query", object{"query": "[.n[] | . * 2]", "file": "a.json", "limit": 9}, `{"results":[[2,4,6]],"truncated":false}`)
	l.problem(t, "query", object{"query": ".", "file": "link", "limit": 9}, "link")

	l.policy.Fuel = 2_000_000_000 // so that it ends within seconds
	l.limit(t, "query", object{"query": "def f: f; f", "limit": 9}, host.ErrFuel)
	l.limit(t, "query", object{"query": "[limit(1e12; repeat(1))]", "limit": 9}, host.ErrFuel)
	l.limit(t, "query", object{"query": `[limit(1e9; repeat("x" * 100000))]`, "limit": 9}, host.ErrMemory)
	l.problem(t, "query", object{"query": "def f: 1 + f; f", "text": strings.Repeat("[", 1_000_000), "limit": 9}, "exceeded max depth")
}

func TestMarkdown(t *testing.T) {
	l := load(t, "markdown")
	l.value(t, "to_html", object{"markdown": "# Tea"}, `"<h1>Tea</h1>\n"`)
	l.value(t, "from_html", object{"html": "<ul><li>a<li>b</ul>"}, `"- a\n- b"`)

	// Deep and quadratic texts have an answer, or an error that says why.
	for _, text := range []string{
		strings.Repeat("> ", 50_000), strings.Repeat("[", 50_000), strings.Repeat("*a _b ", 20_000), strings.Repeat("- ", 20_000), strings.Repeat("![", 50_000),
		strings.Repeat("|a", 10_000) + "\n" + strings.Repeat("|-", 10_000),
	} {
		l.ends(t, "to_html", object{"markdown": text})
	}
	for _, text := range []string{strings.Repeat("<div>", 100_000), strings.Repeat("<table><tr><td>", 20_000), strings.Repeat("<b><i>", 50_000), strings.Repeat("<!--", 100_000)} {
		l.ends(t, "from_html", object{"html": text})
	}
}

// ends requires that a call has a result, an error of the tool, or meets a limit.
func (l *loaded) ends(t *testing.T, tool string, args object) {
	t.Helper()
	r, err := l.call(t, tool, args)
	switch {
	case err != nil:
		require.True(t, isLimit(err), err)
	case r.Kind == abi.ToolError:
		require.NotEmpty(t, r.Error)
	default:
		require.Equal(t, abi.Success, r.Kind)
	}
}

func TestDiff(t *testing.T) {
	l := load(t, "diff")
	args := object{"patch": "--- a/tea.txt\n+++ b/tea.txt\n@@ -1 +1 @@\n-black\n+green\n"}
	l.problem(t, "patch", args, "no folder is granted as /work")
	dir := l.grant(t, abi.FileWrite)
	write(t, dir, "tea.txt", "black\n")
	l.value(t, "patch", args, `{"files":[{"path":"tea.txt","action":"changed"}]}`)
	data, err := os.ReadFile(filepath.Join(dir, "tea.txt"))
	require.NoError(t, err)
	require.Equal(t, "green\n", string(data))
	l.value(t, "diff", object{"old_file": "tea.txt", "new": "green\n", "context": 3}, `{"diff":"","added":0,"removed":0}`)

	outside := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(outside, []byte("black\n"), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link")))
	l.problem(t, "diff", object{"old_file": "link", "context": 3}, "link")
	l.problem(t, "patch", object{"patch": "--- a/link\n+++ b/link\n@@ -1 +1 @@\n-black\n+green\n"}, "link")
	l.problem(t, "patch", object{"patch": "--- /dev/null\n+++ b/../../x\n@@ -0,0 +1 @@\n+green\n"}, "leads out of the folder")
	data, err = os.ReadFile(outside)
	require.NoError(t, err)
	require.Equal(t, "black\n", string(data))

	// Texts that have nothing in common.
	var old, text strings.Builder
	for i := range 40_000 {
		old.WriteString(strings.Repeat("a", i%50) + "\n")
		text.WriteString(strings.Repeat("b", i*7%50) + "\n")
	}
	l.ends(t, "diff", object{"old": old.String(), "new": text.String(), "context": 3})

	l.grant(t, abi.FileRead)
	l.problem(t, "patch", object{"patch": "--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+green\n"}, "x: ")
}

func TestRegex(t *testing.T) {
	l := load(t, "regex")
	dir := l.grant(t, abi.FileWrite)
	write(t, dir, "a.txt", "one two\n")
	l.value(t, "search", object{"pattern": "t.o", "path": ".", "limit": 9}, `{"matches":[{"path":"a.txt","line":1,"text":"one two"}],"more":false,"skipped":0}`)
	l.value(t, "replace", object{"pattern": `(\w+) (\w+)`, "replacement": "$2 $1", "path": "a.txt"}, `{"files":[{"path":"a.txt","count":1}],"changed":1,"count":1,"skipped":0}`)
	data, err := os.ReadFile(filepath.Join(dir, "a.txt"))
	require.NoError(t, err)
	require.Equal(t, "two one\n", string(data))

	outside := t.TempDir()
	write(t, outside, "secret", "two\n")
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "folder")))
	require.NoError(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link")))
	for _, path := range []string{"../a", "/etc", "link", "folder", "folder/secret"} {
		l.problem(t, "search", object{"pattern": "two", "path": path, "limit": 9}, path)
		l.problem(t, "replace", object{"pattern": "two", "replacement": "x", "path": path}, path)
	}
	l.value(t, "search", object{"pattern": "^two$", "path": ".", "limit": 9}, `{"matches":[],"more":false,"skipped":0}`)

	// What takes exponential time elsewhere.
	write(t, dir, "b.txt", strings.Repeat("a", 100_000)+"b")
	l.value(t, "search", object{"pattern": `^(a+)+$`, "path": "b.txt", "limit": 9}, `{"matches":[],"more":false,"skipped":0}`)
	l.problem(t, "search", object{"pattern": `((a{100}){100}){100}`, "path": "b.txt", "limit": 9}, "error parsing regexp")
	l.problem(t, "replace", object{"pattern": "a", "replacement": strings.Repeat("a", 100), "path": "b.txt"}, "the result would have more")
	l.policy.Fuel = 2_000_000_000
	write(t, dir, "c.txt", strings.Repeat("a", 4_000_000))
	l.limit(t, "search", object{"pattern": `(.{1,300}){3}b`, "path": "c.txt", "limit": 9}, host.ErrFuel)
}

func TestShell(t *testing.T) {
	l := load(t, "shell")
	dir := l.grant(t, abi.FileWrite)
	write(t, dir, "a.txt", "b\na\n")
	outside := t.TempDir()
	write(t, outside, "secret", "xyzzy\n")
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "folder")))
	require.NoError(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link")))

	shell := func(script string) (stdout string, code int) {
		r, err := l.call(t, "shell", object{"script": script})
		require.NoError(t, err)
		require.Equal(t, abi.Success, r.Kind, r.Error)
		var out struct {
			Stdout string `json:"stdout"`
			Code   int    `json:"exit_code"`
		}
		require.NoError(t, json.Unmarshal(r.Value, &out))
		return out.Stdout, out.Code
	}
	for script, want := range map[string]string{
		"pwd; sort a.txt | head -n 1":                                            "/work\na\n",
		"mkdir -p d/e && cp a.txt d/e && mv d/e/a.txt d/b && rm -r d/e; ls d":    "b\n",
		"for f in *.txt; do wc -l < $f; done > n; cat n; sed -i s/2/3/ n; cat n": "2\n3\n",
		"cd d; pwd; test -f b && echo there; [ -d ../d ] && grep -r a .":         "/work/d\nthere\nb:a\n",
		"cat <<E | tr a-z A-Z\nhere\nE":                                          "HERE\n",
		"x=$(find . -type f -name b); echo $x; touch -c new; rm -rf d n; ls":     "./d/b\na.txt\nfolder\nlink\n",
	} {
		t.Run(script, func(t *testing.T) {
			if strings.Contains(script, "d/b") || strings.Contains(script, "cd d") || strings.Contains(script, "find") {
				write(t, dir, "d/b", "a\n")
			}
			stdout, _ := shell(script)
			require.Equal(t, want, stdout)
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "d")))
		})
	}

	for _, script := range []string{
		"cat ../secret", "cat /etc/passwd", "cat link", "cat folder/secret", "ls folder/", "cp link copy", "cp folder/secret copy",
		"echo x > link", "echo x > folder/new", "echo x > ../new", "cd folder", "cd /etc", "rm folder/secret", "mv folder/secret .", "sed -i s/x/y/ link",
		"ln -s /etc/passwd p", "source link", "/bin/sh -c ls", "curl http://localhost",
	} {
		t.Run(script, func(t *testing.T) {
			stdout, code := shell(script)
			require.NotZero(t, code)
			require.NotContains(t, stdout, "xyzzy")
			data, err := os.ReadFile(filepath.Join(outside, "secret"))
			require.NoError(t, err)
			require.Equal(t, "xyzzy\n", string(data))
			entries, err := os.ReadDir(outside)
			require.NoError(t, err)
			require.Len(t, entries, 1)
		})
	}

	for _, script := range []string{"cat /etc/passwd", "cat ../secret 2>&1", "echo x > /etc/new", "head -1 < ../secret"} {
		r, err := l.call(t, "shell", object{"script": script})
		require.NoError(t, err)
		require.Contains(t, string(r.Value), "not in the granted folder /work", script)
	}

	l.policy.Fuel = 3_000_000_000 // so that it ends within seconds
	l.limit(t, "shell", object{"script": "while true; do :; done"}, host.ErrFuel)
	l.limit(t, "shell", object{"script": "x=0123456789; while true; do x=$x$x; done"}, host.ErrMemory)
	for _, script := range []string{"while true; do echo x; done", "seq 1 1000000000", "f() { f; }; f", "f() { f | f; }; f", "while true; do echo x; done | head -n 1"} {
		t.Run(script, func(t *testing.T) {
			_, err := l.call(t, "shell", object{"script": script})
			require.True(t, isLimit(err), err)
		})
	}
	_, code := shell("true")
	require.Zero(t, code)
}

func TestImage(t *testing.T) {
	l := load(t, "image")
	l.problem(t, "resize", object{"file": "a.png", "fit": "contain", "quality": 85}, "no folder is granted as /work")
	dir := l.grant(t, abi.FileRead)
	var file bytes.Buffer
	require.NoError(t, png.Encode(&file, image.NewRGBA(image.Rect(0, 0, 4000, 3000)))) // of a camera
	write(t, dir, "a.png", file.String())
	for _, args := range []object{{"file": "a.png", "width": 400}, {"file": "a.png", "width": 2000, "format": "jpeg"}} {
		args["fit"], args["quality"] = "contain", 85
		r, err := l.call(t, "resize", args)
		require.NoError(t, err)
		require.Equal(t, abi.Success, r.Kind, r.Error)
		require.Len(t, r.Content, 1)
	}

	header := append([]byte("IHDR"), binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 100_000), 100_000)...)
	header = append(header, 8, 6, 0, 0, 0)
	bomb := binary.BigEndian.AppendUint32(append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d"), header...), crc32.ChecksumIEEE(header))
	l.problem(t, "resize", object{"data": base64.StdEncoding.EncodeToString(bomb), "width": 10, "fit": "contain", "quality": 85}, "100000 × 100000 pixels")
	require.NoError(t, os.Symlink("/etc/hostname", filepath.Join(dir, "link")))
	l.problem(t, "info", object{"file": "link"}, "link")
	l.problem(t, "info", object{"file": "../a.png"}, "leads out of the folder")
}

func isLimit(err error) bool {
	for _, reason := range []error{host.ErrFuel, host.ErrMemory, host.ErrOutput, context.DeadlineExceeded} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}
