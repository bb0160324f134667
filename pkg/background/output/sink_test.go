package output

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// slowLog is the obvious implementation of a log: it keeps everything, and drops the
// middle when it is read.
type slowLog struct {
	capacity int
	all      []byte
	stderr   bool
}

func (l *slowLog) write(p string, stderr bool) {
	for _, c := range []byte(p) {
		lineStart := len(l.all) == 0 || l.all[len(l.all)-1] == '\n'
		if !lineStart && l.stderr != stderr {
			l.all = append(l.all, '\n')
			lineStart = true
		}
		if lineStart && stderr {
			l.all = append(l.all, stderrTag...)
		}
		l.all = append(l.all, c)
		l.stderr = stderr
	}
}

func (l *slowLog) output() Output {
	if len(l.all) <= l.capacity {
		return Output{Head: l.all}
	}
	tail := (l.capacity + 3) / 4
	from, to := l.capacity-tail, len(l.all)-tail
	for k := 1; k <= min(3, from); k++ { // a character that begins before the cut and ends after it
		if utf8.RuneStart(l.all[from-k]) {
			if !utf8.FullRune(l.all[from-k : from]) {
				from -= k
			}
			break
		}
	}
	for i := 0; i < 3 && to < len(l.all) && !utf8.RuneStart(l.all[to]); i++ {
		to++
	}
	return Output{Head: l.all[:from], Tail: l.all[to:], Omitted: int64(to - from)}
}

func TestSinkIsTheObviousLog(t *testing.T) {
	pieces := []string{"a", "\n", "ä", "line\n", "😀", "\x80", "\xf0\x9f", strings.Repeat("x", 40), "two\nlines\n", "end"}
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		capacity := 1 + random.IntN(100)
		sink, slow := NewSink(capacity), slowLog{capacity: capacity}
		for range random.IntN(60) {
			piece := pieces[random.IntN(len(pieces))]
			if random.IntN(3) == 0 {
				_, _ = sink.Stderr().Write([]byte(piece))
				slow.write(piece, true)
			} else {
				_, _ = sink.Stdout().Write([]byte(piece))
				slow.write(piece, false)
			}
		}
		want, got := slow.output(), sink.Output()
		require.Equal(t, string(want.Head), string(got.Head), "seed %d", seed)
		require.Equal(t, string(want.Tail), string(got.Tail), "seed %d", seed)
		require.Equal(t, want.Omitted, got.Omitted, "seed %d", seed)
		require.EqualValues(t, len(slow.all), sink.Beat().OutputBytes)

		// Every chunk is a part of the log, and never spans the gap.
		for range 5 {
			offset, limit := int64(random.IntN(len(slow.all)+5)), random.IntN(50)
			c := sink.Tail(offset, limit)
			require.EqualValues(t, len(slow.all), c.End)
			require.Equal(t, string(slow.all[c.Offset:c.Offset+int64(len(c.Data))]), string(c.Data))
			require.LessOrEqual(t, len(c.Data), limit)
			head, tail := int64(len(want.Head)), int64(len(want.Head))+want.Omitted
			require.False(t, c.Offset < head && c.Offset+int64(len(c.Data)) > head && want.Omitted > 0)
			if offset < head || offset >= tail {
				require.Equal(t, min(offset, c.End), c.Offset)
			} else {
				require.Equal(t, tail, c.Offset)
			}
		}
	}
}

func TestSinkMarksStderr(t *testing.T) {
	type write struct {
		text   string
		stderr bool
	}
	for name, c := range map[string]struct {
		writes []write
		want   string
	}{
		"stdout only":              {[]write{{"a", false}, {"b\n", false}}, "ab\n"},
		"once a line, not a write": {[]write{{"a", true}, {"b", true}, {"c\nd", true}, {"\n", true}}, "[stderr] abc\n[stderr] d\n"},
		"lines in turn":            {[]write{{"out\n", false}, {"err\n", true}, {"out\n", false}}, "out\n[stderr] err\nout\n"},
		"change in mid-line":       {[]write{{"out", false}, {"err", true}, {"out", false}}, "out\n[stderr] err\nout"},
		"empty writes":             {[]write{{"out", false}, {"", true}, {"put", false}}, "output"},
	} {
		t.Run(name, func(t *testing.T) {
			sink := NewSink(0)
			for _, w := range c.writes {
				to := sink.Stdout()
				if w.stderr {
					to = sink.Stderr()
				}
				n, err := to.Write([]byte(w.text))
				require.NoError(t, err)
				require.Equal(t, len(w.text), n)
			}
			require.Equal(t, c.want, sink.Output().String())
		})
	}
}

func TestSinkKeepsBothEnds(t *testing.T) {
	sink := NewSink(16)
	for i := range 10 {
		_, _ = fmt.Fprintf(sink.Stdout(), "\x1b[1m%d\x1b[0m\r\n", i) // 11 bytes each
	}
	out := sink.Output()
	require.Equal(t, "\x1b[1m0\x1b[0m\r\n\x1b", string(out.Head))
	require.Equal(t, "0m\r\n", string(out.Tail))
	require.EqualValues(t, 94, out.Omitted)
	require.Equal(t, "0\n\n[system] 94 bytes omitted\n0m\n", Clean([]byte(out.String())))
	require.Contains(t, out.String(), "\r\n\x1b\n[system] 94 bytes omitted\n0m\r\n")
}

func TestSinkStatusAndProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := NewSink(0)
		require.Equal(t, engine.Beat{}, sink.Beat())
		sink.Status("  \x1b[31mred\x1b[0m\nalert " + strings.Repeat("x", 300))
		sink.Progress(math.NaN(), math.Inf(1), "m\x00essage")
		beat := sink.Beat()
		require.True(t, strings.HasPrefix(beat.Detail, "red alert xxx"))
		require.Equal(t, 200, utf8.RuneCountInString(beat.Detail))
		require.Equal(t, &engine.Progress{Message: "message"}, beat.Progress)
		require.Zero(t, beat.LastOutputAt)
		sink.Progress(3, -1, "")
		require.Equal(t, &engine.Progress{Done: 3}, sink.Beat().Progress)
		time.Sleep(time.Second)
		_, _ = sink.Stdout().Write([]byte("x"))
		require.True(t, sink.Beat().LastOutputAt.Equal(time.Now()))
	})
}

func TestSinkAfterItsRun(t *testing.T) {
	sink := NewSink(10)
	_, _ = sink.Stdout().Write([]byte("in"))
	sink.Close()
	n, err := sink.Stderr().Write([]byte("late"))
	require.NoError(t, err)
	require.Equal(t, 4, n)
	sink.Status("late")
	sink.Progress(1, 1, "late")
	require.Equal(t, "in", sink.Output().String())
	require.Equal(t, engine.Beat{LastOutputAt: sink.Beat().LastOutputAt, OutputBytes: 2}, sink.Beat())
}

func TestSinkStopping(t *testing.T) {
	sink := NewSink(0)
	stopping := sink.Stopping()
	select {
	case <-stopping:
		t.Fatal("nobody asked")
	default:
	}
	sink.RequestStop()
	sink.RequestStop()
	<-stopping
	<-sink.Stopping()
}

func TestSinkIsSafeForConcurrentUse(t *testing.T) {
	sink := NewSink(1000)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 500 {
				if i%2 == 0 {
					_, _ = sink.Stdout().Write([]byte("out\n"))
				} else {
					_, _ = sink.Stderr().Write([]byte("err\n"))
				}
				sink.Status("s")
				sink.Progress(1, 2, "p")
				sink.Tail(-10, 10)
				sink.Output()
				sink.Beat()
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 4*500*4+4*500*13, sink.Beat().OutputBytes)
}

// The benchmark does the same with a gigabyte.
func TestSinkIsBounded(t *testing.T) {
	sink := NewSink(0)
	chunk := bytes.Repeat([]byte("0123456789abcdeß"), 1<<12) // 68 KiB
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := 0
	for n < 64<<20 {
		_, _ = sink.Stdout().Write(chunk)
		n += len(chunk)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2<<20), "bytes allocated for 64 MiB of output")
	out := sink.Output()
	require.LessOrEqual(t, len(out.Head)+len(out.Tail), DefaultCap)
	require.GreaterOrEqual(t, len(out.Head)+len(out.Tail), DefaultCap-6)
	require.EqualValues(t, n, int64(len(out.Head)+len(out.Tail))+out.Omitted)
	require.True(t, utf8.Valid(out.Head) && utf8.Valid(out.Tail))
	require.True(t, bytes.HasPrefix(chunk, out.Head[:100]))
	require.True(t, bytes.HasSuffix(out.Tail, chunk[len(chunk)-100:]))
}
