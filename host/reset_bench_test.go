package host_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest/python"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// BenchmarkClean measures a warm call, clean as every call is, and beside it in
// turn the same call
//   - fresh: on this host, in an instance that starts up for it,
//   - raw: with wazero alone, the plain module in a new instance,
//   - pooled: with wazero alone, in one instance that is never put back.
//
// The latter two copy the arguments into the guest and its result out of it, and
// check nothing. The ratio is that of the medians of warm and pooled.
func BenchmarkClean(b *testing.B) {
	b.Run("c", func(b *testing.B) { cleanly(b, digits(b), "digits", `{"text":"12345"}`) })
	b.Run("tiny", func(b *testing.B) { cleanly(b, echo.wasm(), "tool", `{"text":"12345"}`) })
	large := guest{
		invoke: seq(
			set(0, read(abi.FieldArgs, dataAt, 2<<20)),
			i32(int64(abi.StreamResult)), i32(dataAt), get(0), call(fnWrite), drop(nil), i32(0),
		),
		change: func(m *wasmbin.Module) { m.Memories[0].Min = 40 },
	}
	for name, text := range map[string]string{
		"text": "lorem ipsum ", "lines": `one line of a file, sixty bytes of it in each of the lines.\n`, "chinese": "漢字",
	} {
		b.Run("echo-1MB-"+name, func(b *testing.B) {
			cleanly(b, large.wasm(), "tool", `{"text":"`+strings.Repeat(text, 1<<20/len(text))+`"}`)
		})
	}
	file, err := wordcount.build()
	require.NoError(b, err)
	wasm, err := os.ReadFile(file)
	require.NoError(b, err)
	b.Run("go", func(b *testing.B) { cleanly(b, wasm, "wordcount", `{"text":"a few words"}`) })
	inPython, err := python.Plugin(os.DirFS("../guest/python/examples/result"))
	require.NoError(b, err)
	b.Run("python", func(b *testing.B) { cleanly(b, inPython, "summarize", `{"numbers":[1,2,6]}`) })
	b.Run("go-12KB", func(b *testing.B) {
		cleanly(b, wasm, "wordcount", `{"text":"`+strings.Repeat("lorem ipsum ", 1000)+`"}`)
	})
}

// digits is a plugin in C, which testdata/c/build.sh builds.
func digits(t testing.TB) []byte {
	t.Helper()
	wasm, err := os.ReadFile("testdata/c/digits.wasm")
	require.NoError(t, err)
	return wasm
}

// TestC: a plugin in C answers, and what it counts begins anew with each call.
func TestC(t *testing.T) {
	h := newHost(t, nil)
	m := compile(t, h, digits(t))
	for range 3 {
		r, err := h.Call(context.Background(), m, host.Call{Tool: "digits", Args: []byte(`{"text":"12345"}`)})
		require.NoError(t, err)
		require.JSONEq(t, `{"sum":15,"calls":1}`, string(r.Value))
	}
	require.EqualValues(t, 2, h.Stats().Warm)
}

// lane is one of the ways to make a call that are measured in turn.
type lane struct {
	name string
	call func()
	took []time.Duration
}

func (l *lane) median() time.Duration {
	took := slices.Sorted(slices.Values(l.took))
	return took[len(took)/2]
}

// inTurn gives each lane some calls after another, so that all see the same
// machine, and none only what the one before left in its caches.
func inTurn(b *testing.B, lanes []*lane) {
	const calls = 10
	for b.Loop() {
		for _, l := range lanes {
			for range calls {
				begin := time.Now()
				l.call()
				l.took = append(l.took, time.Since(begin))
			}
		}
	}
	b.ReportMetric(0, "ns/op") // of all of them: says nothing
	for _, l := range lanes {
		report(b, l.name, l.took)
	}
}

func cleanly(b *testing.B, wasm []byte, tool, args string) {
	h := newHost(b, nil)
	m := compile(b, h, wasm)
	raw := newRaw(b, wasm, tool, args)
	call := func(impure bool) func() {
		req := host.Call{Traits: host.Traits{Plugin: "bench", ImpureInit: impure}, Tool: tool, Args: []byte(args)}
		return func() {
			if r, err := h.Call(context.Background(), m, req); err != nil || r.Kind != abi.Success {
				b.Fatal(r.Kind, r.Error, err)
			}
		}
	}
	pooled := raw.pooled(b)
	warm := &lane{name: "warm", call: call(false)}
	base := &lane{name: "pooled", call: func() {
		if len(pooled()) == 0 {
			b.Fatal("no result")
		}
	}}
	inTurn(b, []*lane{
		warm,
		{name: "fresh", call: call(true)},
		{name: "raw", call: func() {
			if len(raw.call()) == 0 {
				b.Fatal("no result")
			}
		}},
		base,
	})
	b.ReportMetric(float64(warm.median())/float64(base.median()), "ratio")
}
