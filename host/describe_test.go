package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// says makes a guest write the two bytes at dataAt as its manifest.
func says(before ...code) code {
	return seq(seq(before...), drop(write(abi.StreamManifest, dataAt, 2)), i32(0))
}

// deep makes the helper call itself n times, each within the one before. It
// counts in memory, at 0.
func deep(n int64) (helper, first code) {
	less := store(0, op(wasmbin.OpI32Sub, load(i32(0)), i32(1)))
	return when(load(i32(0)), less, call(fnHelper)), seq(store(0, i32(n)), call(fnHelper))
}

// TestDescribeIsTheSameInterpreted: what a describe writes, costs, takes and how
// it ends does not depend on whether it is compiled.
func TestDescribeIsTheSameInterpreted(t *testing.T) {
	helper, recurse := deep(1000)
	for name, g := range map[string]guest{
		"a manifest":          {describe: says()},
		"computes":            {describe: says(times(100_000))},
		"starts up":           {describe: says(), start: times(1000), initialize: times(2000)},
		"recurses":            {describe: says(recurse), helper: helper},
		"grows":               {describe: says(drop(grow(3)), store(3*page, i32(7)))},
		"grows too far":       {describe: says(when(op(wasmbin.OpI32Eq, grow(5000), i32(-1)), unreachable()))},
		"reads clocks":        {describe: says(drop(seq(i32(0), i64(1), i32(512), call(fnClock))))},
		"reads randomness":    {describe: says(times(20, drop(wasi(fnRandom, 0, 640))))},
		"asks for a folder":   {describe: says(store(512, wasi(fnPrestat, 3, 0)))},
		"asks the host":       {describe: says(drop(capability(dataAt, 2, 0, 0)), drop(read(abi.FieldArgs, 0, 8)))},
		"traps":               {describe: seq(times(1000), unreachable())},
		"reads outside":       {describe: seq(drop(load(i32(page))), i32(0))},
		"divides by nothing":  {describe: op(0x6d, i32(1), i32(0))}, // i32.div_s
		"passes what is not":  {describe: says(drop(write(abi.StreamManifest, page, 1)))},
		"exits":               {describe: seq(i32(3), call(fnExit), i32(0))},
		"answers nonsense":    {describe: i32(9)},
		"writes too much":     {describe: says(forever(drop(write(abi.StreamManifest, 0, page))))},
		"is out of fuel":      {describe: says(forever())},
		"is so in its start":  {describe: says(), start: forever()},
		"is so in WASI":       {describe: says(forever(drop(wasi(fnYield))))},
		"is so in a function": {describe: says(forever(drop(read(abi.FieldScript, 0, 8))))},
	} {
		g.data = "{}"
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			compiled := h.DescribeIn(t, false, g.wasm(), 1_000_003)
			require.Equal(t, compiled, h.DescribeIn(t, true, g.wasm(), 1_000_003))
			require.True(t, compiled.Manifest == "{}" || compiled.Err != "")
			require.Zero(t, h.Stats().Memory)
		})
	}
	t.Run("written in Go", func(t *testing.T) {
		h := newHost(t, nil)
		compiled := h.DescribeIn(t, false, vectorsPlugin.wasm(t), 0)
		require.Equal(t, compiled, h.DescribeIn(t, true, vectorsPlugin.wasm(t), 0))
		_, err := abi.DecodeManifest([]byte(compiled.Manifest))
		require.NoError(t, err)
		require.Less(t, compiled.Fuel, int64(500_000_000/10), "and there is ten times that")
	})
}

// locals adds functions like the helper that only have locals.
func locals(functions int, each uint32) func(m *wasmbin.Module) {
	return func(m *wasmbin.Module) {
		for range functions {
			m.Functions = append(m.Functions, m.Functions[0])
			m.Codes = append(m.Codes, wasmbin.Code{Locals: []wasmbin.LocalGroup{{Count: each, Type: wasmbin.I32}}, Body: code{byte(wasmbin.OpEnd)}})
		}
	}
}

// types adds types that nothing has.
func types(n int) func(m *wasmbin.Module) {
	return func(m *wasmbin.Module) { m.Types = append(m.Types, slices.Repeat(m.Types[:1], n)...) }
}

// pages makes a memory begin with this many pages, in addition to another change.
func pages(n uint32, change func(*wasmbin.Module)) func(m *wasmbin.Module) {
	return func(m *wasmbin.Module) {
		m.Memories[0].Min = n
		change(m)
	}
}

// TestInterpretable: a module that is too large for an interpreter is recognized
// before it reaches one.
func TestInterpretable(t *testing.T) {
	for name, c := range map[string]struct {
		guest guest
		fits  bool
	}{
		"a small one":            {guest{describe: says()}, true},
		"much in a function":     {guest{describe: slices.Repeat(code{byte(wasmbin.OpNop)}, 8<<20)}, true},
		"too much in a function": {guest{describe: slices.Repeat(code{byte(wasmbin.OpNop)}, 9<<20)}, false},
		"many locals":            {guest{change: locals(16700, 1000)}, true},
		"too many":               {guest{change: locals(16800, 1000)}, false},
		"too many of a function": {guest{change: locals(1, 1001)}, false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.fits, host.Interpretable(c.guest.wasm())) })
	}
}

// TestDescribeCompiles: a plugin is compiled to describe itself only where an
// interpreter cannot bring it to its end, and then does what it always did.
func TestDescribeCompiles(t *testing.T) {
	deepHelper, deeply := deep(3000)
	for name, c := range map[string]struct {
		guest    guest
		memory   int64 // of the host; 0 is the default
		compiles bool
	}{
		"a small one":             {guest{describe: says()}, 0, false},
		"one that computes":       {guest{describe: says(times(10_000))}, 0, false},
		"one that computes long":  {guest{describe: says(times(10_000_000))}, 0, true},
		"deep recursion":          {guest{describe: says(deeply), helper: deepHelper}, 0, true},
		"many locals":             {guest{describe: says(), change: locals(1, 1000)}, 0, false},
		"as much as a large one":  {guest{describe: says(), change: locals(10_000, 1000)}, 0, false},
		"too many of a function":  {guest{describe: says(), change: locals(1, 1001)}, 0, true},
		"some in little memory":   {guest{describe: says(), change: locals(8, 1000)}, 1 << 20, false},
		"much in one function":    {guest{describe: says(slices.Repeat(code{byte(wasmbin.OpNop)}, 6000))}, 1 << 20, true},
		"many functions":          {guest{describe: says(), change: locals(3600, 1)}, 1 << 20, true},
		"many types":              {guest{describe: says(), change: types(4000)}, 1 << 20, true},
		"no room for it to grow":  {guest{describe: says(drop(grow(8))), change: locals(8, 1000)}, 1 << 20, true},
		"no room for its memory":  {guest{describe: says(), change: pages(8, locals(8, 1000))}, 1 << 20, true},
		"more than there is room": {guest{describe: says(), change: locals(20, 1000)}, 1 << 20, true},
	} {
		c.guest.data = "{}"
		describes := func(t *testing.T) {
			var log bytes.Buffer
			h := hostWith(t, host.Config{Memory: c.memory, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			manifest, err := h.Describe(context.Background(), c.guest.wasm())
			require.NoError(t, err)
			require.Equal(t, "{}", string(manifest))
			stats := h.Stats()
			require.Equal(t, c.compiles, stats.Compiled.Anew == 1)
			require.Zero(t, stats.Memory)
			require.Zero(t, stats.Instances)
			require.Empty(t, log.String())
		}
		t.Run(name, func(t *testing.T) {
			if c.compiles {
				describes(t) // at the latest when the time of an interpreter is over
			} else {
				synctest.Test(t, describes) // where none passes
			}
		})
	}
}

// TestDescribePaysForItsStack: the values of an interpreted guest lie on a heap
// that the guest does not see, and 1,000 locals are pushed by each call.
func TestDescribePaysForItsStack(t *testing.T) { synctest.Test(t, testDescribePaysForItsStack) }

func testDescribePaysForItsStack(t *testing.T) {
	helper, recurse := deep(1900)
	looks := drop(read(abi.FieldScript, 0, 8)) // as each function of the host does
	wasm := guest{describe: says(recurse), helper: seq(helper, looks), data: "{}", change: func(m *wasmbin.Module) {
		m.Codes[0].Locals = []wasmbin.LocalGroup{{Count: 900, Type: wasmbin.I32}}
	}}.wasm()
	h := hostWith(t, host.Config{})
	_, err := h.Describe(context.Background(), wasm)
	require.NoError(t, err)
	require.Zero(t, h.Stats().Compiled.Anew)
	require.Greater(t, h.Stats().MemoryPeak, int64(1900*900*8))
	require.Zero(t, h.Stats().Memory)
}

// countdown is a context that is canceled once it was looked at so many times.
type countdown struct {
	context.Context
	mu    sync.Mutex
	looks int
	done  chan struct{}
}

func (c *countdown) Done() <-chan struct{} { return c.done }

func (c *countdown) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looks--; c.looks == 0 {
		close(c.done)
	}
	if c.looks <= 0 {
		return context.Canceled
	}
	return nil
}

// TestDescribeIsCanceled at each of its looks at the context.
func TestDescribeIsCanceled(t *testing.T) { synctest.Test(t, testDescribeIsCanceled) }

func testDescribeIsCanceled(t *testing.T) {
	h := hostWith(t, host.Config{})
	endless := guest{describe: seq(forever(), i32(0))}.wasm()
	for looks := 1; looks <= 8; looks++ {
		ctx := &countdown{Context: context.Background(), looks: looks, done: make(chan struct{})}
		_, err := h.Describe(ctx, endless)
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Zero(t, h.Stats().Compiled.Anew)
	require.NotZero(t, h.Stats().Started)
	require.Zero(t, h.Stats().Memory)
	gone := errors.New("the operator went away")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	_, err := h.Describe(ctx, endless)
	require.ErrorIs(t, err, gone)
}

// TestDescribesTakeTurns: some at a time are interpreted, since each takes a lot
// of memory, and the next one waits: large plugins for large ones only.
func TestDescribesTakeTurns(t *testing.T) {
	for _, large := range []bool{false, true} {
		t.Run(fmt.Sprint(large), func(t *testing.T) { testDescribesTakeTurns(t, large) })
	}
}

func testDescribesTakeTurns(t *testing.T, large bool) {
	wasm := guest{describe: says(), data: "{}"}.wasm()
	if large {
		wasm = wasmbin.AppendCustom(wasm, "large", make([]byte, 6<<20))
	}

	synctest.Test(t, func(t *testing.T) {
		h := hostWith(t, host.Config{})
		h.Interpret(!large)
		end := h.Interpret(large)
		described := make(chan error, 1)
		go func() {
			_, err := h.Describe(t.Context(), wasm)
			described <- err
		}()
		synctest.Wait()
		require.Empty(t, described)
		end()
		require.NoError(t, <-described)
		require.Zero(t, h.Stats().Compiled.Anew)
		_, err := h.Describe(t.Context(), wasm)
		require.NoError(t, err, "it has given its place back")
	})
}

// BenchmarkDescribe measures asking a plugin written in Go what it is, and beside it
// in turn the same compiled, where the code is not in a cache.
func BenchmarkDescribe(b *testing.B) {
	wasm := vectorsPlugin.wasm(b)
	h := hostWith(b, host.Config{})
	var took [2]time.Duration
	for b.Loop() {
		for i, describe := range []func(context.Context, []byte) ([]byte, error){h.Describe, h.DescribeCompiled} {
			begin := time.Now()
			_, err := describe(b.Context(), wasm)
			took[i] += time.Since(begin)
			require.NoError(b, err)
		}
	}
	b.ReportMetric(0, "ns/op") // of both: says nothing
	b.ReportMetric(float64(took[0].Milliseconds())/float64(b.N), "ms-interpreted")
	b.ReportMetric(float64(took[1].Milliseconds())/float64(b.N), "ms-compiled")
	b.ReportMetric(float64(took[1])/float64(took[0]), "compiled/interpreted")
}
