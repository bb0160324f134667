package host_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// mistaken builds the plugin with a mistake.
func mistaken(t *testing.T, mistake, mode string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mistakes.wasm")
	cmd := exec.Command("go", "build", "-trimpath", "-buildmode="+mode, "-ldflags=-s -w -X 'main.mistake="+mistake+"'", "-o", file, "./testdata/mistakes")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=-mod=readonly")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	wasm, err := os.ReadFile(file)
	require.NoError(t, err)
	return wasm
}

// TestMistakes holds what an author reads about the commonest mistakes of a plugin
// written in Go.
func TestMistakes(t *testing.T) {
	fulltest.Only(t, "builds plugins with the go command")
	for mistake, c := range map[string]struct {
		mode, want string
	}{
		"no build mode": {"default", `export "_initialize": missing: this Go program was built without -buildmode=c-shared`},
		"serve in main": {"c-shared", "no plugin is served: call guest.Serve in an init function. The host never runs main"},
		"serve twice":   {"c-shared", "the plugin crashed: unreachable; its last words: panic: guest.Serve was called twice"},
		"panic in init": {"c-shared", "the plugin crashed: unreachable; its last words: panic: assignment to entry in nil map | goroutine 1 [running]: | main.init.0() | "},
	} {
		t.Run(mistake, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			h := newHost(t, slog.New(slog.NewTextHandler(&log, nil)))
			wasm := mistaken(t, mistake, c.mode)
			_, err := h.Describe(context.Background(), wasm)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "\n")
			require.Empty(t, log.String(), "the loader reports it")

			m, err := h.Compile(context.Background(), wasm) // with a manifest in a section it comes to a call
			if c.mode != "c-shared" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			o := do(context.Background(), h, m, host.Call{})
			require.ErrorIs(t, o.err, host.ErrTrap)
			require.ErrorContains(t, o.err, c.want[strings.LastIndex(c.want, ": ")+2:])
			require.Equal(t, abi.InternalMessage, o.Error, "the model does not see the plugin's words")
		})
	}
}

// TestMistakenReach: Go's own words are those of a fault in a network, or in a folder.
func TestMistakenReach(t *testing.T) {
	fulltest.Only(t, "builds plugins with the go command")
	for mistake, want := range map[string]string{
		"dial":    "dial tcp 127.0.0.1:80: address 127.0.0.1:80: connect: Connection refused (plugins have no network but the operation http: in Go, import guest/web)",
		"look up": "Connection reset by peer (plugins have no network but the operation http: in Go, import guest/web)",
		"read":    "open /etc/passwd: No such file or directory (a plugin reaches only the folders that it was granted)",
	} {
		t.Run(mistake, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, nil)
			o := do(context.Background(), h, compile(t, h, mistaken(t, mistake, "c-shared")), host.Call{Tool: "mistakes"})
			require.NoError(t, o.err)
			require.Equal(t, abi.ToolError, o.Kind)
			require.True(t, strings.HasSuffix(o.Error, want), o.Error)
		})
	}
}

// TestLastWords: the operator sees what a plugin wrote to stderr before it crashed, on
// one line and within bounds. The model does not.
func TestLastWords(t *testing.T) {
	for name, c := range map[string]struct{ said, want string }{
		"nothing":           {"", ""},
		"one line":          {"assertion failed: n > 0\n", "assertion failed: n > 0"},
		"forged lines":      {"bye\x1b[31m\r\ntime=now level=ERROR\u202e\n", "bye␛[31m | time=now level=ERROR⟨U+202E⟩"},
		"the panic":         {"working\npanic: out of luck\n\ngoroutine 1 [running]:\n\tmain.go:4\n", "panic: out of luck | goroutine 1 [running]: | main.go:4"},
		"not UTF-8":         {"a\xffb", "a\ufffdb"},
		"the end of much":   {strings.Repeat("x", 5000) + "end", strings.Repeat("x", 1533) + "end"},
		"a very long stack": {"panic: no\n" + strings.Repeat(strings.Repeat("f", 100)+"\n", 100) + "end", "panic: no" + strings.Repeat(" | "+strings.Repeat("f", 100), 4) + " | " + strings.Repeat("f", 98) + " | … | fff | " + strings.Repeat(strings.Repeat("f", 100)+" | ", 5) + "end"},
		"a long stack":      {strings.Repeat("y", 3000) + "\npanic: no\n" + strings.Repeat("f()\n", 200), "panic: no" + strings.Repeat(" | f()", 200)},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			h := newHost(t, slog.New(slog.NewJSONHandler(&log, nil)))
			g := guest{data: c.said, invoke: seq(drop(write(abi.StreamStderr, dataAt, int64(len(c.said)))), unreachable())}
			g.change = func(m *wasmbin.Module) { m.Memories[0].Min = 2 }
			o := do(context.Background(), h, compile(t, h, g.wasm()), host.Call{})

			var end *host.CallError
			require.ErrorAs(t, o.err, &end)
			require.Equal(t, c.want, end.LastWords)
			require.Equal(t, c.want != "", strings.Contains(o.err.Error(), "; its last words: "+c.want))
			require.Equal(t, abi.InternalMessage, o.Error)
			require.NotContains(t, o.err.Error(), "\n")
			require.Equal(t, c.want != "", strings.Contains(log.String(), `"last_words":`))
		})
	}
}

// A module that is a program and a reactor was perhaps built the wrong way, which its
// crash mentions. It is not refused: in C and Rust it works.
func TestNeverStartedUp(t *testing.T) {
	program := func(invoke code) guest {
		return guest{invoke: invoke, change: func(m *wasmbin.Module) {
			m.Exports = append(m.Exports, wasmbin.Export{Name: abi.ExportStart, Index: fnHelper})
		}}
	}
	require.NoError(t, run(t, program(i32(0)), host.Call{}).err)
	o := run(t, program(unreachable()), host.Call{})
	require.ErrorIs(t, o.err, host.ErrTrap)
	require.ErrorContains(t, o.err, "unreachable; the plugin exports _start and no _initialize, so it was never started up: build it as a reactor")
}
