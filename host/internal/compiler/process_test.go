package compiler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/plugintest"
)

// TestMain makes the binary of these tests a program to compile in. What it is to
// do for a test stands in place of the module.
func TestMain(m *testing.M) {
	if len(os.Args) == 1 && os.Args[0] == ChildName {
		if err := serve(os.Stdin, os.Stdout, act); err != nil {
			_, _ = os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// acts are what a child does in place of a build.
var acts = map[string]func(dir string) error{
	"spin":     func(string) error { spin(); return nil },
	"overflow": func(string) error { return errors.New(overflow(0)) },
	"memory":   func(string) error { return takeMemory() },
	"panic":    func(string) error { panic("it \x1b[31mpanicked") },
	"fault":    func(string) error { os.Exit(7); return nil },
	"folder":   func(string) error { return errors.New("the disk is full") },
	"full":     func(string) error { return &os.PathError{Op: "write", Path: "module", Err: syscall.ENOSPC} },
	"sleep":    func(string) error { time.Sleep(time.Hour); return nil },
}

func act(ctx context.Context, dir string, wasm []byte) error {
	if do := acts[string(wasm)]; do != nil {
		return do(dir)
	}
	return Build(ctx, dir, wasm)
}

func spin() {
	for done := false; !done; {
	}
}

// overflow recurses deeper than any stack.
func overflow(depth int) string {
	if depth < 0 {
		return ""
	}
	var frame [1024]byte
	frame[depth%1024] = 'a'
	return overflow(depth+1) + string(frame[:1])
}

func takeMemory() error {
	var taken [][]byte
	for len(taken) < 1<<20 {
		b := make([]byte, 1<<20)
		for i := range b {
			b[i] = byte(i)
		}
		taken = append(taken, b)
		runtime.Gosched() // a busy machine might not let the watcher of the memory run otherwise
	}
	return errors.New("there was room for it")
}

func process(t *testing.T) *Process {
	self, err := os.Executable()
	require.NoError(t, err)
	return &Process{Path: self, Memory: 1 << 30, Processor: time.Minute}
}

// TestProcessBuilds: a child leaves the same files as a build in process.
func TestProcessBuilds(t *testing.T) {
	wasm := plugintest.Plugin{}.Wasm()
	here, there := t.TempDir(), t.TempDir()
	require.NoError(t, Build(t.Context(), here, wasm))
	module, code, err := Built(here)
	require.NoError(t, err)
	for _, low := range []bool{false, true} {
		require.NoError(t, process(t).Build(t.Context(), there, wasm, low))
		sameModule, sameCode, err := Built(there)
		require.NoError(t, err)
		require.Equal(t, filepath.Base(code), filepath.Base(sameCode))
		for _, files := range [][2]string{{module, sameModule}, {code, sameCode}} {
			a, err := os.ReadFile(files[0])
			require.NoError(t, err)
			b, err := os.ReadFile(files[1])
			require.NoError(t, err)
			require.Equal(t, a, b)
		}
		there = t.TempDir()
	}
}

// TestBuilt: what a child leaves is taken only where it has to be.
func TestBuilt(t *testing.T) {
	for name, change := range map[string]func(dir, where, code string) error{
		"no code":      func(_, _, code string) error { return os.Remove(code) },
		"two files":    func(_, where, _ string) error { return os.WriteFile(filepath.Join(where, "ab"), nil, 0o600) },
		"another name": func(_, where, code string) error { return os.Rename(code, filepath.Join(where, "code")) },
		"a link":       func(_, _, code string) error { return errors.Join(os.Remove(code), os.Symlink("/etc/passwd", code)) },
		"no module":    func(dir, _, _ string) error { return os.Remove(filepath.Join(dir, moduleFile)) },
		"a module elsewhere": func(dir, _, _ string) error {
			return errors.Join(os.Remove(filepath.Join(dir, moduleFile)), os.Symlink("/etc/passwd", filepath.Join(dir, moduleFile)))
		},
		"code elsewhere": func(dir, where, _ string) error {
			return errors.Join(os.Rename(where, filepath.Join(dir, "away")), os.Symlink("away", where))
		},
		"others can write it": func(_, _, code string) error { return os.Chmod(code, 0o666) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, Build(t.Context(), dir, plugintest.Plugin{}.Wasm()))
			_, code, err := Built(dir)
			require.NoError(t, err)
			require.NoError(t, change(dir, filepath.Dir(code), code))
			_, _, err = Built(dir)
			require.Error(t, err)
		})
	}
}

// TestProcessEnds: whatever happens to a child, its build ends with an error
// that names the cause, and this process continues.
func TestProcessEnds(t *testing.T) {
	for name, test := range map[string]struct {
		kind Kind   // of an Error; empty for others
		text string // in the message
	}{
		"spin":                        {Processor, "more than the 1s of processor time"},
		"memory":                      {Memory, "more than the 256 MiB of memory"},
		"overflow":                    {Crashed, "stack overflow"},
		"panic":                       {Crashed, "panicked"},
		"fault":                       {"", "exit status 7"},
		"folder":                      {"", "the disk is full"},
		"not a module":                {Refused, "not a WebAssembly binary"},
		"\x00asm\x01\x00\x00\x00junk": {Refused, ""},
	} {
		t.Run(strings.ToValidUTF8(name, ""), func(t *testing.T) {
			p := process(t)
			p.Memory, p.Processor = 256<<20, time.Minute
			switch name {
			case "spin":
				p.Processor = time.Second
			case "overflow":
				p.Memory = 1 << 30
			}
			err := p.Build(t.Context(), t.TempDir(), []byte(name), false)

			var kind Kind
			if e, ok := errors.AsType[*Error](err); ok {
				kind = e.Kind
			}
			if name == "spin" && kind == Wall {
				return // a machine too busy to give it a second of processor time in five
			}
			require.Equal(t, test.kind, kind, "%v", err)
			require.ErrorContains(t, err, test.text)
		})
	}
}

// TestProcessIsKilled when nobody waits for it any more.
func TestProcessIsKilled(t *testing.T) {
	for _, doing := range []string{"spin", "sleep"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("nobody waits")
		dir := t.TempDir()
		ended := make(chan error)
		go func() {
			ended <- process(t).Build(ctx, dir, []byte(doing), false)
		}()
		cancel(gone)
		require.ErrorIs(t, <-ended, gone)
	}
}

// TestProcessThatDoesNotStart says so, and blames no module.
func TestProcessThatDoesNotStart(t *testing.T) {
	p := process(t)
	p.Path = filepath.Join(t.TempDir(), "missing")
	err := p.Build(t.Context(), t.TempDir(), plugintest.Plugin{}.Wasm(), false)
	require.ErrorContains(t, err, "does not start")
	require.ErrorIs(t, err, os.ErrNotExist)

	p.Path = "/bin/false"
	err = p.Build(t.Context(), t.TempDir(), plugintest.Plugin{}.Wasm(), false)
	require.ErrorContains(t, err, "compiler process")
}

// TestFirstLine finds the reason in what Go prints when a process dies.
func TestFirstLine(t *testing.T) {
	for stderr, want := range map[string]string{
		"": "",
		"fatal error: stack overflow\n\nruntime stack:\n":                 "stack overflow",
		"runtime: goroutine stack exceeds\nfatal error: stack overflow\n": "stack overflow",
		"panic: oops\n\ngoroutine 1":                                      "panic: oops",
		"SIGSEGV: segmentation violation\nPC=0x1":                         "SIGSEGV: segmentation violation",
		"something else\nand more":                                        "something else",
	} {
		require.Equal(t, want, firstLine(stderr))
	}
}

// TestCollectorFailed: what Go says when its collector is refused memory, and what it says
// of other faults.
func TestCollectorFailed(t *testing.T) {
	const stack = "SIGSEGV: segmentation violation\nPC=0x43637d m=6 sigcode=1 addr=0x0\n\n%s\n%s\n\t/usr/local/go/src/x.go:520 +0x5d\n"
	for text, want := range map[string]bool{
		fmt.Sprintf(stack, "goroutine 0 gp=0x3e36 m=6 mp=0x3e36 [idle]:", "runtime.(*spanQueue).tryDrain(0x7fe6, 0x436d)"): true,
		fmt.Sprintf(stack, "goroutine 1 gp=0x3e36 m=6 mp=0x3e36 [running]:", "runtime.memmove(0x7fe6)"):                    false,
		fmt.Sprintf(stack, "goroutine 0 gp=0x3e36 m=6 mp=0x3e36 [idle]:", "github.com/tetratelabs/wazero.compile()"):       false,
		"panic: runtime error\n\ngoroutine 0 [idle]:\nruntime.x()\n":                                                       false,
		"": false,
	} {
		require.Equal(t, want, collectorFailed(text), text)
	}
}

// TestFullDisk: a child says that its disk is full.
func TestFullDisk(t *testing.T) {
	p := process(t)
	require.ErrorIs(t, p.Build(t.Context(), t.TempDir(), []byte("full"), false), ErrSpace)
	require.NotErrorIs(t, p.Build(t.Context(), t.TempDir(), []byte("folder"), false), ErrSpace)
}
