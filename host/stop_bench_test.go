package host_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// BenchmarkStop measures the time from when a call is stopped until it has
// returned, while another guest computes too: the median, and what one in ten and
// one in a hundred exceed. Guests that spin say what the machine adds.
//
//	go test ./host -run '^$' -bench '^BenchmarkStop$' -benchtime=200x
func BenchmarkStop(b *testing.B) {
	bulk := func(o wasmbin.Op, immediates int, from, n int64) code {
		return append(op(o, i32(0), i32(from), i32(n)), make([]byte, immediates)...)
	}
	roomy := func(body ...code) []byte {
		return guest{invoke: seq(drop(grow(16_000)), drop(progress(0, 1, 0, 0)), forever(body...), i32(0))}.wasm()
	}
	for _, c := range []struct {
		name string
		wasm func(testing.TB) []byte
	}{
		{"spin", func(testing.TB) []byte { return roomy() }},
		{"fill 64 MiB", func(testing.TB) []byte { return roomy(bulk(wasmbin.OpMemoryFill, 1, 1, 64<<20)) }},
		{"fill 900 MiB", func(testing.TB) []byte { return roomy(bulk(wasmbin.OpMemoryFill, 1, 1, 900<<20)) }},
		{"copy 400 MiB", func(testing.TB) []byte { return roomy(bulk(wasmbin.OpMemoryCopy, 2, 400<<20, 400<<20)) }},
		{"Go, allocating", allocating},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkStop(b, c.wasm(b)) })
	}
}

func benchmarkStop(b *testing.B, wasm []byte) {
	h := hostWith(b, host.Config{})
	spin := compile(b, h, guest{invoke: seq(forever(), i32(0))}.wasm())
	m := compile(b, h, wasm)
	policy := host.Policy{Fuel: host.MaxFuel, Memory: 1 << 30, Timeout: time.Hour}
	background, end := context.WithCancel(context.Background())
	var busy sync.WaitGroup
	busy.Go(func() { do(background, h, spin, host.Call{Policy: policy}) })

	var took []time.Duration
	for i := range b.N {
		ctx, stop := context.WithCancel(context.Background())
		var at time.Time
		begun := sync.OnceFunc(func() {
			time.AfterFunc(time.Duration(10+i%50)*time.Millisecond, func() { at = time.Now(); stop() })
		})
		o := do(ctx, h, m, host.Call{Policy: policy, Observers: host.Observers{Progress: func(host.Progress) { begun() }, Stderr: onWrite(begun)}})
		took = append(took, time.Since(at))
		require.ErrorIs(b, o.err, context.Canceled)
	}

	end()
	busy.Wait()
	slices.Sort(took)
	b.ReportMetric(0, "ns/op") // most of it is waiting
	b.ReportMetric(took[len(took)/2].Seconds()*1e3, "p50-ms")
	b.ReportMetric(took[len(took)*9/10].Seconds()*1e3, "p90-ms")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1e3, "p99-ms")
}

// onWrite is a writer that says when something is written.
type onWrite func()

func (f onWrite) Write(p []byte) (int, error) { f(); return len(p), nil }

// allocating is a command written in Go that allocates forever.
func allocating(t testing.TB) []byte {
	const source = `package main

type tree struct{ left, right *tree }

func build(n int) *tree {
	if n == 0 {
		return &tree{}
	}
	return &tree{build(n - 1), build(n - 1)}
}

var (
	kept  *tree
	bytes []byte
)

func main() {
	println("begun")
	for {
		kept = build(16)
		bytes = make([]byte, 4<<20)
	}
}
`
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600))
	build := exec.Command("go", "build", "-o", "main.wasm", "main.go")
	build.Dir, build.Env = dir, append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	said, err := build.CombinedOutput()
	require.NoError(t, err, "%s", said)
	wasm, err := os.ReadFile(filepath.Join(dir, "main.wasm"))
	require.NoError(t, err)
	return wasm
}
