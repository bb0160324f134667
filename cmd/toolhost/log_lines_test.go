package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
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
	log := slog.New(newLineHandler(text, &out)).With("plugin", "lab")
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

// yielding lets others write before the lines of a record.
type yielding struct {
	mu  sync.Mutex
	out strings.Builder
}

func (y *yielding) Write(p []byte) (int, error) {
	if !bytes.Contains(p, []byte("msg=")) {
		for range 10 {
			runtime.Gosched()
		}
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.out.Write(p)
}

// TestLogLinesTogether: nothing comes between a record and its lines.
func TestLogLinesTogether(t *testing.T) {
	var w yielding
	log := slog.New(newLineHandler(slog.NewTextHandler(&w, nil), &w))
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			for range 100 {
				log.Error(fmt.Sprintf("p%d | panic\nline", n))
			}
		})
	}
	all.Wait()

	lines := strings.Split(w.out.String(), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		_, mark, _ := strings.Cut(lines[i], `msg="`)
		require.Equal(t, mark[:2]+" | line", lines[i+1])
	}
}
