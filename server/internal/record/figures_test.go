package record

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// However many calls and tools there are, a bounded number is remembered.
func TestFiguresAreBounded(t *testing.T) {
	f := NewFigures(nil)
	at := time.Now()
	for i := range 3 * maxTools {
		f.Add(Note{Tool: strings.Repeat("i", i%127+1) + string(rune('a'+i%26)) + string(rune('α'+i)), Known: true}, "alice", at.Add(time.Duration(i)), abi.Result{Kind: abi.Success}, nil)
	}
	require.Len(t, f.Tools(), maxTools)
	calls := f.Calls(CallQuery{})
	require.Len(t, calls, maxCalls)
	for i, c := range calls {
		require.Equal(t, at.Add(time.Duration(3*maxTools-1-i)), c.At)
	}
}

// Quantiles of a few durations are exact: nobody takes 37 ms for the 95th percentile of two
// calls of 10 ms and one of 3 s.
func TestQuantilesOfFew(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		durations []time.Duration
		p50, p95  time.Duration
	}{
		{[]time.Duration{24_820 * ms}, 24_820 * ms, 24_820 * ms},
		{[]time.Duration{3000 * ms, 10 * ms, 10 * ms}, 10 * ms, 3000 * ms},
		{[]time.Duration{3000 * ms, 12 * ms, 10 * ms}, 12 * ms, 3000 * ms},
		{[]time.Duration{40 * ms, 30 * ms, 20 * ms, 10 * ms}, 20 * ms, 40 * ms},
	} {
		var h histogram
		for _, d := range test.durations {
			h.add(d)
		}
		require.Equal(t, test.p50, h.quantile(0.5), test.durations)
		require.Equal(t, test.p95, h.quantile(0.95), test.durations)
	}

	var h histogram
	for range 9 {
		h.add(ms)
	}
	h.add(time.Minute)
	require.Equal(t, time.Minute, h.quantile(0.95), "the longest of ten")
}

// A quantile is off by at most an eighth, over the whole range.
func TestQuantiles(t *testing.T) {
	for _, d := range []time.Duration{0, time.Microsecond, 5 * time.Microsecond, 90 * time.Microsecond, 1234 * time.Microsecond, time.Second, 9 * time.Minute, 100 * time.Hour} {
		var h histogram
		for range 10 {
			h.add(d)
			h.add(10 * d)
		}
		require.InEpsilon(t, d+time.Microsecond, h.quantile(0.5)+time.Microsecond, 0.13, d)
	}
	var h histogram
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Millisecond)
	}
	require.InEpsilon(t, 500*time.Millisecond, h.quantile(0.5), 0.13)
	require.InEpsilon(t, 950*time.Millisecond, h.quantile(0.95), 0.13)
	require.Equal(t, time.Second, h.max)
	require.Zero(t, (&histogram{}).quantile(0.5))
}

// A clock that jumps leaves no more minutes than there may be, and none twice.
func TestHistoryOfJumps(t *testing.T) {
	var h history
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, after := range []time.Duration{0, time.Minute, -30 * time.Minute, 2 * time.Minute, 90 * time.Minute, 300 * time.Hour, -time.Hour, 5 * time.Minute} {
		h.add(sample{at: at.Add(after), runs: background.Stats{Failed: map[engine.ErrorKind]int64{}}})
		require.LessOrEqual(t, len(h.minutes), maxMinutes)
		for i := 1; i < len(h.minutes); i++ {
			require.Equal(t, time.Minute, h.minutes[i].At.Sub(h.minutes[i-1].At))
		}
	}
}

// However many calls there are, and however the clock jumps, an hour of them is kept.
func TestCallHour(t *testing.T) {
	var h callHour
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	add := func(after time.Duration) {
		h.add(&calledTool{at: at.Add(after), took: time.Duration(len(h.minutes)) * time.Millisecond, outcome: abi.Success})
	}
	for i := range 1000 {
		add(time.Duration(i) * 20 * time.Second)
	}
	require.Len(t, h.minutes, maxMinutes)
	newest := h.minutes[maxMinutes-1]
	add(5 * time.Hour) // the clock was put back, by less than is kept
	require.Equal(t, newest.calls+1, h.minutes[maxMinutes-1].calls)
	add(-100 * time.Hour)
	require.Len(t, h.minutes, 1, "another hour")
	require.Equal(t, at.Add(-100*time.Hour), time.Unix(60*h.minutes[0].minute, 0).UTC())
	add(1000 * time.Hour)
	require.Nil(t, h.at(at))
	require.EqualValues(t, 1, h.at(at.Add(1000*time.Hour)).calls)
}
