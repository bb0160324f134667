package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/pluginbuild"
	"github.com/toolhost/toolhost/internal/plugintest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"toolhost": main})
}

// TestScripts runs testdata/script: each file is a part of the command's
// manual. The example plugins are built once, from source.
func TestScripts(t *testing.T) {
	dist := buildExamples(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("DIST", dist)
			env.Setenv("TOOLHOST_PLUGINS", dist)
			env.Setenv("TOOLHOST_DATA", filepath.Dir(plugintest.CacheDir())) // its folder cache is that of all tests
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "wasm": wasm},
	})
}

func buildExamples(t testing.TB) string {
	dist := filepath.Join(t.TempDir(), "dist")
	h, err := host.New(t.Context(), host.Config{CacheDir: plugintest.CacheDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(context.Background())
	sources, err := pluginbuild.Sources("../../examples/plugins")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources {
		if err := pluginbuild.Build(t.Context(), h, s, dist); err != nil {
			t.Fatal(err)
		}
	}
	return dist
}

// exits CODE COMMAND…: the command must exit with exactly that code. Its output
// is there for stdout and stderr as after exec.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG…]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := err.(interface{ ExitCode() int })
		if !ok {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if code != want {
		ts.Fatalf("exit code %d, expected %d", code, want)
	}
}

// wasm FILE KIND writes a file that is no plugin in one of the ways they come.
func wasm(ts *testscript.TestScript, _ bool, args []string) {
	kinds := map[string]string{
		"truncated": "\x00asm\x01\x00\x00\x00\x01\x7f\x00",
		"component": "\x00asm\x0d\x00\x01\x00",
		// (import "env" "f" (func)) (memory (export "memory") 1) (func (export "_start"))
		"import": "\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x02\x09\x01\x03env\x01f\x00\x00\x03\x02\x01\x00\x05\x03\x01\x00\x01" +
			"\x07\x13\x02\x06memory\x02\x00\x06_start\x00\x01\x0a\x04\x01\x02\x00\x0b",
		// (memory (export "memory") 1) (func (export "_start"))
		"command": "\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x05\x03\x01\x00\x01" +
			"\x07\x13\x02\x06memory\x02\x00\x06_start\x00\x00\x0a\x04\x01\x02\x00\x0b",
		// The same with a body that takes a number from nowhere: drop.
		"invalid": "\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x05\x03\x01\x00\x01" +
			"\x07\x13\x02\x06memory\x02\x00\x06_start\x00\x00\x0a\x05\x01\x03\x00\x1a\x0b",
	}
	if len(args) != 2 || kinds[args[1]] == "" {
		ts.Fatalf("usage: wasm FILE truncated|component|import|command|invalid")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(kinds[args[1]]), 0o644))
}
