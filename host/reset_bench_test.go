package host_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// BenchmarkClean measures a warm call, clean as every call is, and beside it in
// turn the same call on a host that keeps no instance warm and starts the
// plugin up anew, and wazero alone with a fresh instance of the plain module.
func BenchmarkClean(b *testing.B) {
	b.Run("tiny", func(b *testing.B) { cleanly(b, echo.wasm(), "tool", `{"text":"12345"}`) })
	b.Run("echo-1MB", func(b *testing.B) {
		large := guest{
			invoke: seq(
				set(0, read(abi.FieldArgs, dataAt, 2<<20)),
				i32(int64(abi.StreamResult)), i32(dataAt), get(0), call(fnWrite), drop(nil), i32(0),
			),
			change: func(m *wasmbin.Module) { m.Memories[0].Min = 40 },
		}
		cleanly(b, large.wasm(), "tool", `{"text":"`+strings.Repeat("lorem ipsum ", 1<<20/12)+`"}`)
	})
	file, err := wordcount.build()
	require.NoError(b, err)
	wasm, err := os.ReadFile(file)
	require.NoError(b, err)
	b.Run("go", func(b *testing.B) { cleanly(b, wasm, "wordcount", `{"text":"a few words"}`) })
	b.Run("go-12KB", func(b *testing.B) {
		cleanly(b, wasm, "wordcount", `{"text":"`+strings.Repeat("lorem ipsum ", 1000)+`"}`)
	})
}

func cleanly(b *testing.B, wasm []byte, tool, args string) {
	h := newHost(b, nil)
	m := compile(b, h, wasm)
	raw := newRaw(b, wasm, tool, args)
	var warm, fresh, plain []time.Duration
	timed := func(into *[]time.Duration, f func()) {
		begin := time.Now()
		f()
		*into = append(*into, time.Since(begin))
	}
	call := func(impure bool) func() {
		req := host.Call{Plugin: "bench", Tool: tool, Args: []byte(args), ImpureInit: impure}
		return func() {
			if r, err := h.Call(context.Background(), m, req); err != nil || r.Kind != abi.Success {
				b.Fatal(r.Kind, r.Error, err)
			}
		}
	}
	ours, anew := call(false), call(true)
	for b.Loop() {
		timed(&warm, ours)
		timed(&fresh, anew)
		timed(&plain, func() {
			if raw.call() == "" {
				b.Fatal("no result")
			}
		})
	}
	b.ReportMetric(0, "ns/op") // of all three: says nothing
	for name, d := range map[string][]time.Duration{"warm": warm, "fresh": fresh, "raw": plain} {
		report(b, name, d)
	}
}
