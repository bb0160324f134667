package host_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
)

// BenchmarkCompile measures compiling anew in this process and in a child, in
// turn: a module of some hundred bytes, and one written in Go. Processor time is
// that of both processes.
func BenchmarkCompile(b *testing.B) {
	for name, wasm := range map[string][]byte{"small": echo.wasm(), "go": vectorsPlugin.wasm(b)} {
		b.Run(name, func(b *testing.B) {
			ways := []string{"in-process", "child"}
			var wall, busy [2]time.Duration
			for b.Loop() {
				for i, compiler := range []string{"", host.ThisProgram()} {
					dir := b.TempDir()
					h := hostWith(b, host.Config{CacheDir: dir, Compiler: compiler})
					began, before := time.Now(), processorTime(b)
					m, err := h.Compile(b.Context(), wasm)
					wall[i] += time.Since(began)
					busy[i] += processorTime(b) - before
					require.NoError(b, err)
					require.NoError(b, m.Close(b.Context()))
					require.NoError(b, os.RemoveAll(filepath.Join(dir, "code")))
				}
			}

			b.ReportMetric(0, "ns/op") // of both: says nothing
			for i, way := range ways {
				b.ReportMetric(float64(wall[i].Microseconds())/1000/float64(b.N), "ms-"+way)
				b.ReportMetric(float64(busy[i].Microseconds())/1000/float64(b.N), "cpu-ms-"+way)
			}
			b.ReportMetric(float64(busy[1])/float64(busy[0]), "cpu-child/in-process")
		})
	}
}

// processorTime is what this process and its children that ended have taken.
func processorTime(b *testing.B) (used time.Duration) {
	for _, whose := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		require.NoError(b, syscall.Getrusage(whose, &u))
		used += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return used
}
