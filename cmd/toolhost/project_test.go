package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/plugintest"
)

// TestJavaScriptExamples: each example does what it says.
func TestJavaScriptExamples(t *testing.T) {
	wasm, err := javascript{".ts"}.compile(t.Context(), "../../examples/javascript")
	require.NoError(t, err)
	h, err := host.New(t.Context(), host.Config{CacheDir: plugintest.CacheDir()})
	require.NoError(t, err)
	defer h.Close(context.Background())
	m, err := h.Compile(t.Context(), wasm)
	require.NoError(t, err)

	for tool, c := range map[string]struct {
		args   string
		result string
		err    string
	}{
		"repeat": {args: `{"text":"ab","times":3}`, result: `"ababab"`},
		"parts":  {args: `{"url":"https://example.com/a?b=c"}`, result: `{"scheme":"https","host":"example.com","path":"/a","query":{"b":"c"}}`},
		"divide": {args: `{"dividend":7,"divisor":0}`, err: "the divisor is 0: choose another"},
		"steps":  {args: `{"count":3}`},
		"square": {args: `{"red":255,"green":0,"blue":0}`},
		"remind": {args: `{"text":"now","seconds":0.01}`, result: `"now"`},
	} {
		t.Run(tool, func(t *testing.T) {
			var reports []host.Progress
			r, err := h.Call(t.Context(), m, host.Call{
				Tool: tool, Args: []byte(c.args), Policy: host.Policy{Grant: host.Grant{Clock: true}, Timeout: time.Minute},
				Observers: host.Observers{Progress: func(p host.Progress) { reports = append(reports, p) }},
			})
			require.NoError(t, err)
			require.Equal(t, c.err, r.Error)
			if c.result != "" {
				require.JSONEq(t, c.result, string(r.Value))
			}
			switch tool {
			case "steps":
				require.Equal(t, host.Progress{Done: 3, Total: 3, Message: "step 3"}, reports[len(reports)-1])
			case "square":
				require.Len(t, r.Content, 1)
				require.Equal(t, "image/bmp", r.Content[0].MIMEType)
			}
			require.Equal(t, c.err == "", r.Kind == abi.Success)
		})
	}
}

// TestLanguages: the project of each language is known as such.
func TestLanguages(t *testing.T) {
	for name, l := range languages {
		dir := t.TempDir()
		require.Empty(t, l.main(dir), name)
		for file, text := range l.files("words") {
			path := filepath.Join(dir, filepath.FromSlash(file))
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
		found, err := languageOf(dir)
		require.NoError(t, err, name)
		require.Equal(t, l, found, name)
		require.FileExists(t, l.main(dir), name)
	}
}

// TestFolderOfAModule: a Go project can be a folder of a module.
func TestFolderOfAModule(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "tools", "words")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n"), 0o600))
	require.Empty(t, golang{}.main(dir))

	require.NoError(t, os.WriteFile(filepath.Join(root, "go.mod"), []byte("module tools\n"), 0o600))
	require.Equal(t, filepath.Join(dir, "main.go"), golang{}.main(dir))
	require.Empty(t, golang{}.main(filepath.Dir(dir)))
}

// TestNewGoProject: the test of a new project runs once the project was built.
func TestNewGoProject(t *testing.T) {
	fulltest.Only(t, "builds a project and its test")
	dir := t.TempDir()
	for file, text := range (golang{}).files("words") {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	for _, setting := range offline(t) {
		name, value, _ := strings.Cut(setting, "=")
		t.Setenv(name, value)
	}
	t.Setenv("GOFLAGS", "") // with it, the go command of an author does not change go.mod
	_, err := golang{}.compile(t.Context(), dir)
	require.NoError(t, err)

	for _, command := range []string{"vet", "test"} {
		cmd := exec.Command("go", command, ".")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %s: %s", command, out)
	}
}

// TestRustIsMissing: an author without Rust learns what to install.
func TestRustIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := rust{}.compile(t.Context(), t.TempDir())
	require.EqualError(t, err, "cargo was not found")
	h, ok := errors.AsType[*hintError](err)
	require.True(t, ok)
	require.Contains(t, h.hint, "rustup target add wasm32-wasip1")
}

// TestRustTargetIsMissing: an author whose Rust lacks the target learns what to add. The
// compiler names the first crate that it looks for, which depends on the project.
func TestRustTargetIsMissing(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the compiler of this test is a script of a Unix shell")
	}
	for _, crate := range []string{"core", "std"} {
		bin := t.TempDir()
		said := "error[E0463]: can't find crate for `" + crate + "`\n  |\n  = note: the `wasm32-wasip1` target may not be installed"
		script := "#!/bin/sh\ncat >&2 <<'EOF'\n" + said + "\nEOF\nexit 101\n"
		require.NoError(t, os.WriteFile(filepath.Join(bin, "cargo"), []byte(script), 0o700))
		t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))

		_, err := rust{}.compile(t.Context(), t.TempDir())
		require.EqualError(t, err, "there is no standard library of Rust for wasm32-wasip1")
		h, ok := errors.AsType[*hintError](err)
		require.True(t, ok)
		require.Equal(t, "rustup target add wasm32-wasip1", h.hint)
	}
}

// TestMistakesInC: an author learns what is wrong.
func TestMistakesInC(t *testing.T) {
	fulltest.Only(t, "builds a plugin in C")
	if _, err := compilerOfC(t.Context()); err != nil {
		t.Skipf("%v: %s", err, installC)
	}
	var log strings.Builder
	h, err := host.New(t.Context(), host.Config{CacheDir: plugintest.CacheDir(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	defer h.Close(context.Background())
	files := inC{}.files("words")

	for name, c := range map[string]struct {
		old, new string // in tool.c
		build    string
		logged   string
	}{
		"no plugin":        {`TOOLHOST_PLUGIN({"name": "words", "version": "1.0.0", "description": "Counts words."})`, "", "no file has TOOLHOST_PLUGIN", ""},
		"no return":        {"\treturn TH_OK;\n", "", "return-type", ""},
		"no such variable": {"words == 0", "wrds == 0", "did you mean 'words'?", ""},
		"a member no key":  {`th_put_int(th_result(), "words"`, `th_put_int(th_result(), NULL`, "", "JSON: a member of an object has no key"},
		"a key too many":   {`th_put_object(th_result(), NULL);`, ``, "", "JSON: a key outside of an object"},
		"two results":      {`return TH_OK`, `th_end(th_result()); th_put_null(th_result(), NULL); return TH_OK`, "", "JSON: more than one value"},
		"two ends":         {`return TH_OK`, `th_end(th_result()); th_end(th_result()); return TH_OK`, "", "th_end: nothing is open"},
		"nested too far":   {`return TH_OK`, `for (;;) th_put_array(th_result(), "a"), th_end(th_result()), th_put_object(th_result(), "b"); return TH_OK`, "", "JSON is nested too deeply"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.Contains(t, files["tool.c"], c.old)
			for file, text := range files {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(strings.Replace(text, c.old, c.new, 1)), 0o600))
			}
			wasm, err := inC{}.compile(t.Context(), dir)
			if c.build != "" {
				require.ErrorContains(t, err, c.build)
				return
			}
			require.NoError(t, err)
			m, err := h.Compile(t.Context(), wasm)
			require.NoError(t, err)

			log.Reset()
			_, err = h.Call(t.Context(), m, host.Call{Tool: "count", Args: []byte(`{"text":"one two"}`), Policy: host.Policy{Timeout: time.Minute}})
			require.ErrorContains(t, err, "unreachable")
			require.Contains(t, log.String(), c.logged)
		})
	}
}

// TestCIsMissing: who lacks something to compile C learns what, and how to install it.
func TestCIsMissing(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the compilers of this test are scripts of a Unix shell")
	}
	for name, c := range map[string]struct {
		clangs map[string]string // commands of the linker
		zig    bool
		want   []string
		err    string
	}{
		"nothing":               {err: "clang was not found"},
		"not for WebAssembly":   {clangs: map[string]string{"clang": `"/bin/ld" "crt1.o"`}, err: "a linker for WebAssembly, which clang needs, was not found"},
		"no linker":             {clangs: map[string]string{"clang": `"/nowhere/wasm-ld" "/bin/sh"`}, err: "wasm-ld, which clang needs, was not found"},
		"no library":            {clangs: map[string]string{"clang": `"wasm-ld-14" "crt1-reactor.o" "-lc"`}, err: "wasi-libc, which clang needs, was not found"},
		"no runtime":            {clangs: map[string]string{"clang-19": `"wasm-ld-14" "-lc" "/nowhere/libclang_rt.builtins-wasm32.a"`}, err: "its runtime for wasm32, which clang-19 needs, was not found"},
		"all":                   {clangs: map[string]string{"clang": `"wasm-ld-14" "-lc"`}, want: []string{"clang", "-Wl,--stack-first"}},
		"the newest with all":   {clangs: map[string]string{"clang": ``, "clang-9": `"wasm-ld-14"`, "clang-22": `"wasm-ld-14"`, "clang-100": `"wasm-ld"`}, want: []string{"clang-22", "-Wl,--stack-first"}},
		"zig in place of clang": {clangs: map[string]string{"clang": `"wasm-ld"`}, zig: true, want: []string{"zig", "cc"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("PATH", dir)
			program := func(name, prints string) {
				script := fmt.Sprintf("#!/bin/sh\necho clang version 14 >&2\necho ' %s' >&2\n", prints)
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700))
			}
			program("wasm-ld-14", "")
			for clang, linker := range c.clangs {
				program(clang, linker)
			}
			if c.zig {
				program("zig", "")
			}

			command, err := compilerOfC(t.Context())
			if c.err == "" {
				require.NoError(t, err)
				require.Equal(t, append([]string{filepath.Join(dir, c.want[0])}, c.want[1:]...), command)
				return
			}
			require.EqualError(t, err, c.err)
			h, ok := errors.AsType[*hintError](err)
			require.True(t, ok)
			require.Contains(t, h.hint, "apt-get install clang lld wasi-libc")
		})
	}
}
