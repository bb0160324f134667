package host_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// seen collects what a call has used at each of its writes.
type seen struct {
	soFar func() abi.Usage
	all   []abi.Usage
}

func (s *seen) Write(p []byte) (int, error) {
	s.all = append(s.all, s.soFar())
	return len(p), nil
}

// TestUsed: while a call runs its caller can read what it has used, and after its end
// what it used.
func TestUsed(t *testing.T) {
	h := newHost(t, nil)
	output := drop(write(abi.StreamOutput, 0, 10))
	m := compile(t, h, guest{invoke: seq(output, drop(grow(3)), output, forever(), i32(0))}.wasm())
	var s seen
	calls := 0
	used := func(soFar func() abi.Usage) {
		calls++
		s.soFar = soFar
		require.Zero(t, soFar().Fuel, "it has not begun")
	}
	r := do(context.Background(), h, m, host.Call{Policy: host.Policy{Fuel: 1_000_000}, Observers: host.Observers{Stdout: &s, Used: used}})
	require.ErrorIs(t, r.err, host.ErrFuel)
	require.Equal(t, 1, calls)

	require.Len(t, s.all, 2)
	first, second, last := s.all[0], s.all[1], s.soFar()
	require.Positive(t, first.Fuel)
	require.Less(t, first.Fuel, second.Fuel)
	require.EqualValues(t, 3*page, second.MemoryPeak-first.MemoryPeak)
	require.LessOrEqual(t, first.CPU, second.CPU)
	require.EqualValues(t, 1_000_000, last.Fuel)
	require.Equal(t, []any{r.Usage.Fuel, r.Usage.MemoryPeak, r.Usage.CPU, r.Usage.Wait}, []any{last.Fuel, last.MemoryPeak, last.CPU, last.Wait})
}

// TestUsedWhileItComputes reads the usage of a guest that never calls the host.
func TestUsedWhileItComputes(t *testing.T) {
	h := newHost(t, nil)
	m := compile(t, h, guest{invoke: seq(forever(), i32(0))}.wasm())
	ctx, cancel := context.WithCancel(context.Background())
	soFar := make(chan func() abi.Usage, 1)
	go func() {
		read := <-soFar
		for read().Fuel < 1_000_000 || read().CPU == 0 { // it grows, or the test does not end
		}
		cancel()
	}()
	r := do(ctx, h, m, host.Call{Policy: host.Policy{Fuel: 1 << 62, Timeout: time.Hour}, Observers: host.Observers{Used: func(f func() abi.Usage) { soFar <- f }}})
	require.ErrorIs(t, r.err, context.Canceled)
	require.GreaterOrEqual(t, r.Usage.Fuel, int64(1_000_000))
}

// BenchmarkUsed compares calls whose usage can be followed with calls whose usage
// cannot, in turn.
func BenchmarkUsed(b *testing.B) {
	h := newHost(b, nil)
	m := compile(b, h, guest{invoke: seq(forever(), i32(0))}.wasm())
	policy := host.Policy{Fuel: 50_000_000}
	var followed, plain time.Duration
	for b.Loop() {
		begin := time.Now()
		do(context.Background(), h, m, host.Call{Policy: policy})
		plain += time.Since(begin)
		begin = time.Now()
		do(context.Background(), h, m, host.Call{Policy: policy, Observers: host.Observers{Used: func(func() abi.Usage) {}}})
		followed += time.Since(begin)
	}
	b.ReportMetric(0, "ns/op") // of both: says nothing
	b.ReportMetric(float64(followed)/float64(plain), "ratio")
}
