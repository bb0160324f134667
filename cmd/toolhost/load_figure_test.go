package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// latencies are how long requests of each kind took. They are not safe for
// concurrent use.
type latencies struct {
	took    map[string][]time.Duration
	refused map[string]int
}

func newLatencies() *latencies {
	return &latencies{took: map[string][]time.Duration{}, refused: map[string]int{}}
}

func (l *latencies) add(what string, d time.Duration) { l.took[what] = append(l.took[what], d) }

func (l *latencies) refuse(what string) { l.refused[what]++ }

func (l *latencies) merge(other *latencies) {
	for what, took := range other.took {
		l.took[what] = append(l.took[what], took...)
	}
	for what, n := range other.refused {
		l.refused[what] += n
	}
}

func (l *latencies) count() (n int) {
	for _, took := range l.took {
		n += len(took)
	}
	return n
}

// quantile of what took so long, sorted or not.
func quantile(took []time.Duration, q float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	took = slices.Sorted(slices.Values(took))
	return took[min(int(q*float64(len(took))), len(took)-1)]
}

// figure is one number of a load run.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// figures are those of one run, in the order they were taken.
type figures struct {
	t   *testing.T
	all []figure
}

func (f *figures) add(name string, value float64, unit string) {
	f.all = append(f.all, figure{name, value, unit})
	f.t.Logf("%s: %s", name, amount(value, unit))
}

func (f *figures) latencies(l *latencies) {
	for _, what := range slices.SortedFunc(maps.Keys(l.took), func(a, b string) int { return cmp.Compare(len(l.took[b]), len(l.took[a])) }) {
		took := l.took[what]
		f.t.Logf("%-18s %7d answers %6d refused  p50 %9s  p99 %9s  most %9s", what, len(took), l.refused[what],
			round(quantile(took, 0.5)), round(quantile(took, 0.99)), round(quantile(took, 1)))
		f.all = append(f.all, figure{what + ", p50", ms(quantile(took, 0.5)), "ms"}, figure{what + ", p99", ms(quantile(took, 0.99)), "ms"})
	}
	for what, n := range l.refused {
		if len(l.took[what]) == 0 {
			f.t.Logf("%-18s %7d answers %6d refused", what, 0, n)
		}
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

func amount(value float64, unit string) string {
	switch {
	case value != 0 && value < 0.1:
		return fmt.Sprintf("%.3f %s", value, unit)
	case value != 0 && value < 10:
		return fmt.Sprintf("%.2f %s", value, unit)
	case value < 100:
		return fmt.Sprintf("%.1f %s", value, unit)
	}
	return fmt.Sprintf("%.0f %s", value, unit)
}

// loadRuns are the figures of all runs of this process: go test -count=3 makes
// three.
var loadRuns [][]figure

// report appends the figures to the file that the environment names, as lines of
// JSON, and reports the median and the spread of the runs so far.
func (f *figures) report(name string) {
	if name != "" {
		file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		require.NoError(f.t, err)
		defer file.Close()
		for _, one := range f.all {
			require.NoError(f.t, json.NewEncoder(file).Encode(one))
		}
	}
	loadRuns = append(loadRuns, f.all)
	if len(loadRuns) == 1 {
		return
	}
	values := map[figure][]float64{}
	for _, run := range loadRuns {
		for _, one := range run {
			key := figure{Name: one.Name, Unit: one.Unit}
			values[key] = append(values[key], one.Value)
		}
	}
	var table strings.Builder
	for _, one := range f.all {
		of := slices.Sorted(slices.Values(values[figure{Name: one.Name, Unit: one.Unit}]))
		fmt.Fprintf(&table, "| %s | %s | %s to %s |\n", one.Name, amount(of[len(of)/2], one.Unit), amount(of[0], one.Unit), amount(of[len(of)-1], one.Unit))
	}
	f.t.Logf("median and spread of %d runs\n| figure | median | least to most |\n|---|---|---|\n%s", len(loadRuns), &table)
}
