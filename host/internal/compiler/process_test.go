package compiler

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
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
var acts = map[string]func(dir string) (Output, error){
	"spin":     func(string) (Output, error) { spin(); return Output{}, nil },
	"overflow": func(string) (Output, error) { return Output{Name: overflow(0)}, nil },
	"memory":   func(string) (Output, error) { return Output{}, takeMemory() },
	"panic":    func(string) (Output, error) { panic("it \x1b[31mpanicked") },
	"fault":    func(string) (Output, error) { os.Exit(7); return Output{}, nil },
	"folder":   func(string) (Output, error) { return Output{}, errors.New("the disk is full") },
	"sleep":    func(string) (Output, error) { time.Sleep(time.Hour); return Output{}, nil },
	"name":     func(string) (Output, error) { return Output{Name: "ab", Code: "../../escape"}, nil },
}

func act(ctx context.Context, dir string, wasm []byte) (Output, error) {
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
	want, err := Build(t.Context(), here, wasm)
	require.NoError(t, err)
	for _, low := range []bool{false, true} {
		got, err := process(t).Build(t.Context(), there, wasm, low)
		require.NoError(t, err)
		require.Equal(t, want.Name, got.Name)
		for _, files := range [][2]string{{want.Module, got.Module}, {want.Code, got.Code}} {
			a, err := os.ReadFile(files[0])
			require.NoError(t, err)
			b, err := os.ReadFile(files[1])
			require.NoError(t, err)
			require.Equal(t, a, b)
		}
		there = t.TempDir()
	}
}

// TestProcessEnds: whatever becomes of a child, its build ends with an error
// that says what it was, and this process goes on.
func TestProcessEnds(t *testing.T) {
	for name, test := range map[string]struct {
		want  error  // of the same type and value, where it is a limit
		text  string // in the message, where it is not
		crash bool
	}{
		"spin":                        {want: &LimitError{Processor: time.Second}},
		"memory":                      {want: &LimitError{Memory: 256 << 20}},
		"overflow":                    {crash: true, text: "stack overflow"},
		"panic":                       {crash: true, text: "panicked"},
		"fault":                       {text: "exit status 7"},
		"folder":                      {text: "the disk is full"},
		"name":                        {text: "no files"},
		"not a module":                {text: "module: "},
		"\x00asm\x01\x00\x00\x00junk": {text: "module: "},
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
			_, err := p.Build(t.Context(), t.TempDir(), []byte(name), false)

			var crash *CrashError
			require.Equal(t, test.crash, errors.As(err, &crash), "%v", err)
			var limit *LimitError
			if name == "spin" && errors.As(err, &limit) && limit.Wall == 5*p.Processor {
				return // a machine too busy to give it a second of processor time in five
			}
			if test.want != nil {
				require.Equal(t, test.want, err)
			}
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
			_, err := process(t).Build(ctx, dir, []byte(doing), false)
			ended <- err
		}()
		cancel(gone)
		require.ErrorIs(t, <-ended, gone)
	}
}

// TestProcessThatDoesNotStart says so, and blames no module.
func TestProcessThatDoesNotStart(t *testing.T) {
	p := process(t)
	p.Path = filepath.Join(t.TempDir(), "missing")
	_, err := p.Build(t.Context(), t.TempDir(), plugintest.Plugin{}.Wasm(), false)
	require.ErrorContains(t, err, "does not start")
	require.ErrorIs(t, err, os.ErrNotExist)

	p.Path = "/bin/false"
	_, err = p.Build(t.Context(), t.TempDir(), plugintest.Plugin{}.Wasm(), false)
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
