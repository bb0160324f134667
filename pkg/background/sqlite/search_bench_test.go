package sqlite

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// BenchmarkSearch measures searches of 50,000 kept runs: the first page of many hits, and
// a search that finds nothing and so reads all. It reports how much longer they take than
// a page of the list without a filter.
func BenchmarkSearch(b *testing.B) {
	e := benchEngine(b)
	fill(b, e, 50_000)
	page := func(f engine.Filter, hits bool) time.Duration {
		began := time.Now()
		runs, err := e.List(b.Context(), engine.Query{Limit: 50, Filter: f})
		require.NoError(b, err)
		require.Equal(b, hits, len(runs) > 0)
		return time.Since(began)
	}
	for name, f := range map[string]engine.Filter{
		"page": {Statuses: []engine.Status{engine.StatusSucceeded}},
		"text": {Text: "no such thing"},
		"tool": {Tool: "none", Since: time.Unix(1, 0)},
	} {
		b.Run(name, func(b *testing.B) {
			var plain, searched time.Duration
			for b.Loop() {
				plain += page(engine.Filter{}, true)
				searched += page(f, name == "page")
			}
			b.ReportMetric(float64(searched.Microseconds())/float64(b.N), "µs/search")
			b.ReportMetric(float64(searched)/float64(plain), "ratio")
		})
	}
}
