package main

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLogLines: on a terminal, the stack of a panic is lines, and none of them passes for a
// record of the host.
func TestLogLines(t *testing.T) {
	var out strings.Builder
	text := slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	log := slog.New(lineHandler{text, &out}).With("plugin", "lab")
	log.Error("lab | panic: no\ngoroutine 7 [running]:\n\tmain.go:21\nlevel=ERROR msg=\x1b[2Jforged")
	log.Error("the plugin broke", "error", "crashed", "trace", "wasm stack trace:\n\tinvoke()\n")
	log.Warn("one line", "n", 1)

	require.Equal(t, `level=ERROR msg="lab | panic: no" plugin=lab
lab | goroutine 7 [running]:
lab | `+"\t"+`main.go:21
lab | level=ERROR msg=forged
level=ERROR msg="the plugin broke" plugin=lab error=crashed
trace | wasm stack trace:
trace | `+"\t"+`invoke()
level=WARN msg="one line" plugin=lab n=1
`, out.String())
}
