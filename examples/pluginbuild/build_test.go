package pluginbuild_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/examples/pluginbuild"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

const (
	manifest = `{"abi":"toolhost_v1","name":"tiny","version":"1.0.0","description":"Does little.",` +
		`"tools":[{"name":"tiny","description":"Does little.","input_schema":{"type":"object"}}]}`

	goMod = "module tiny\n\ngo 1.26\n"

	reactor = `package main

import "unsafe"

//go:wasmimport toolhost_v1 write
func write(stream int32, ptr unsafe.Pointer, size int32) int32

func say(stream int32, text string) int32 {
	write(stream, unsafe.Pointer(unsafe.StringData(text)), int32(len(text)))
	return 0
}

//go:wasmexport toolhost_describe
func describe() int32 { return say(2, ` + "`" + manifest + "`" + `) }

//go:wasmexport toolhost_invoke
func invoke() int32 { return say(0, "7") }

func main() {}
`
	command = `package main

import "os"

func main() { os.Stdout.WriteString("8") }
`
	sidecar = "abi: toolhost_v1\nname: tiny\n"
)

func newHost(t *testing.T) *host.Host {
	t.Helper()
	h, err := host.New(context.Background(), host.Config{CacheDir: plugintest.CacheDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
	return h
}

// source writes files into a folder of their own.
func source(t *testing.T, name string, files map[string]string) pluginbuild.Source {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.Mkdir(dir, 0o755))
	for file, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
	}
	return pluginbuild.Source{Name: name, Dir: dir}
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestSources(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b/main.go", "a/main.go", "internal/generate/main.go", "empty/README.md"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), nil, 0o644))
	found, err := pluginbuild.Sources(dir)
	require.NoError(t, err)
	require.Equal(t, []pluginbuild.Source{{Name: "a", Dir: filepath.Join(dir, "a")}, {Name: "b", Dir: filepath.Join(dir, "b")}}, found)
	_, err = pluginbuild.Sources(filepath.Join(dir, "nowhere"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestStale(t *testing.T) {
	s := source(t, "tiny", map[string]string{"main.go": command, "old.go": ""})
	out, also := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(also, "shared.go"), nil, 0o644))
	wasm := filepath.Join(out, "tiny.wasm")
	now := time.Now()
	age := func(name string, hours int) {
		require.NoError(t, os.Chtimes(name, now, now.Add(time.Duration(-hours)*time.Hour)))
	}
	settle := func() {
		for _, name := range []string{filepath.Join(s.Dir, "main.go"), filepath.Join(also, "shared.go"), s.Dir, also} {
			age(name, 2)
		}
		age(wasm, 1)
	}
	require.True(t, s.Stale(out, also), "the file is missing")
	require.NoError(t, os.WriteFile(wasm, nil, 0o644))
	age(filepath.Join(s.Dir, "old.go"), 3)
	settle()
	require.False(t, s.Stale(out, also))
	age(filepath.Join(s.Dir, "main.go"), 0)
	require.True(t, s.Stale(out, also), "its source is newer")
	settle()
	age(filepath.Join(also, "shared.go"), 0)
	require.True(t, s.Stale(out, also), "what it is built with is newer")
	require.False(t, s.Stale(out))
	settle()
	require.NoError(t, os.Remove(filepath.Join(s.Dir, "old.go")))
	require.True(t, s.Stale(out, also), "a file is gone")
}

func TestBuildReactor(t *testing.T) {
	ctx, h, out := t.Context(), newHost(t), filepath.Join(t.TempDir(), "new", "dist")
	s := source(t, "tiny", map[string]string{"main.go": reactor, "go.mod": goMod})
	require.NoError(t, pluginbuild.Build(ctx, h, s, out))
	require.Equal(t, []string{"tiny.wasm"}, names(t, out))
	require.False(t, s.Stale(out))
	wasm, err := os.ReadFile(filepath.Join(out, "tiny.wasm"))
	require.NoError(t, err)
	info, err := h.Inspect(wasm)
	require.NoError(t, err)
	require.Equal(t, host.Reactor, info.Shape)
	require.JSONEq(t, manifest, string(info.Manifest))

	again, err := pluginbuild.Seal(ctx, h, wasm)
	require.NoError(t, err)
	require.Equal(t, wasm, again, "sealing twice changes nothing")

	m, err := h.Compile(ctx, wasm)
	require.NoError(t, err)
	r, err := h.Call(ctx, m, host.Call{Tool: "tiny"})
	require.NoError(t, err)
	require.Equal(t, "7", string(r.Value))
}

func TestBuildCommand(t *testing.T) {
	h, out := newHost(t), t.TempDir()
	s := source(t, "tiny[1]", map[string]string{"main.go": command, "go.mod": goMod, "tiny[1].toolhost.yaml": sidecar, "README.md": "x"})
	require.NoError(t, os.WriteFile(filepath.Join(out, "tiny[1].wasm"), []byte("old"), 0o600))
	require.NoError(t, pluginbuild.Build(t.Context(), h, s, out))
	require.Equal(t, []string{"tiny[1].toolhost.yaml", "tiny[1].wasm"}, names(t, out))
	text, err := os.ReadFile(filepath.Join(out, "tiny[1].toolhost.yaml"))
	require.NoError(t, err)
	require.Equal(t, sidecar, string(text))
	wasm, err := os.ReadFile(filepath.Join(out, "tiny[1].wasm"))
	require.NoError(t, err)
	info, err := h.Inspect(wasm)
	require.NoError(t, err)
	require.Equal(t, host.Command, info.Shape)
	require.Nil(t, info.Manifest)
	stat, err := os.Stat(filepath.Join(out, "tiny[1].wasm"))
	require.NoError(t, err)
	require.EqualValues(t, 0o644, stat.Mode().Perm())
}

// What cannot be built says why, and leaves what was there.
func TestBuildErrors(t *testing.T) {
	h := newHost(t)
	canceled, cancel := context.WithCancelCause(context.Background())
	because := errors.New("because")
	cancel(because)
	for name, c := range map[string]struct {
		ctx   context.Context
		files map[string]string
		want  []string
	}{
		"a type error":     {t.Context(), map[string]string{"main.go": "package main\n\nfunc main() { x := 1 + \"a\" }\n", "go.mod": goMod}, []string{"build tiny: go build: exit status 1", "main.go:3", "mismatched types"}},
		"no source":        {t.Context(), map[string]string{"go.mod": goMod}, []string{"build tiny: go build: exit status 1", "no Go files"}},
		"a missing module": {t.Context(), map[string]string{"main.go": "package main\n\nimport _ \"example.com/x\"\n\nfunc main() {}\n", "go.mod": goMod}, []string{"build tiny: go build: exit status 1", "example.com/x"}},
		"canceled":         {canceled, map[string]string{"main.go": command, "go.mod": goMod}, []string{"build tiny: because"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(out, "tiny.wasm"), []byte("old"), 0o644))
			err := pluginbuild.Build(c.ctx, h, source(t, "tiny", c.files), out)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
			if c.ctx == canceled {
				require.ErrorIs(t, err, because)
			}
			require.Equal(t, []string{"tiny.wasm"}, names(t, out))
			old, err := os.ReadFile(filepath.Join(out, "tiny.wasm"))
			require.NoError(t, err)
			require.Equal(t, "old", string(old))
		})
	}
	require.ErrorIs(t, pluginbuild.Build(t.Context(), h, pluginbuild.Source{Name: "x", Dir: filepath.Join(t.TempDir(), "x")}, t.TempDir()), os.ErrNotExist)
}

// describing returns a plugin that describes itself with that text.
func describing(text string) []byte {
	i32 := []wasmbin.ValType{wasmbin.I32}
	constant := func(v int) []byte {
		return wasmbin.AppendS64(wasmbin.AppendOp(nil, wasmbin.OpI32Const), int64(v))
	}
	body := append(constant(int(abi.StreamManifest)), constant(0)...)
	body = wasmbin.AppendOpX(append(body, constant(len(text))...), wasmbin.OpCall, 0)
	body = append(body, byte(wasmbin.OpDrop), byte(wasmbin.OpI32Const), 0, byte(wasmbin.OpEnd))
	m := wasmbin.Module{
		Types:     []wasmbin.FuncType{{Params: append(i32, wasmbin.I32, wasmbin.I32), Results: i32}, {Results: i32}},
		Imports:   []wasmbin.Import{{Module: abi.Version, Name: abi.ImportWrite}},
		Functions: []uint32{1}, Codes: []wasmbin.Code{{Body: body}}, Memories: []wasmbin.Limits{{Min: 1}},
		Exports: []wasmbin.Export{
			{Name: abi.ExportMemory, Kind: wasmbin.KindMemory}, {Name: abi.ExportDescribe, Index: 1}, {Name: abi.ExportInvoke, Index: 1},
		},
		Data: []wasmbin.Data{{Offset: append(constant(0), byte(wasmbin.OpEnd)), Init: []byte(text)}},
	}
	return m.Encode()
}

func TestSeal(t *testing.T) {
	h := newHost(t)
	sealed, err := pluginbuild.Seal(t.Context(), h, describing(manifest))
	require.NoError(t, err)
	info, err := h.Inspect(sealed)
	require.NoError(t, err)
	require.Equal(t, manifest, string(info.Manifest))

	for name, c := range map[string]struct {
		wasm []byte
		want string
	}{
		"a bad manifest": {describing(strings.Replace(manifest, "tiny", "Tiny", 1)), "/name"},
		"no JSON":        {describing(`{`), "JSON"},
		"nothing":        {describing(""), host.ErrNoManifest.Error()},
		"not a module":   {[]byte("hello"), "this is a text file"},
	} {
		t.Run(name, func(t *testing.T) {
			wasm, err := pluginbuild.Seal(t.Context(), h, c.wasm)
			require.ErrorContains(t, err, c.want)
			require.Nil(t, wasm)
		})
	}
}
