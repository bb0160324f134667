package telemetry

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

var update = flag.Bool("update", false, "rewrite the table of docs/metrics.md")

// The page of the documentation lists all metrics, as they are defined.
func TestDocumentedMetrics(t *testing.T) {
	const page, begin, end = "../../docs/metrics.md", "<!-- metrics -->\n", "<!-- end of metrics -->"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, begins := strings.Cut(string(text), begin)
	have, after, ends := strings.Cut(rest, end)
	require.True(t, begins && ends, "the markers of the table are missing")

	want := table()
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(before+begin+want+end+after), 0o644))
		return
	}
	require.Equal(t, want, have, "run the test with -update")
	require.Contains(t, before+after, GenAIConventions)
	require.Contains(t, before+after, Conventions)
}

func table() string {
	var b strings.Builder
	b.WriteString("| in Prometheus, in OpenTelemetry | type | labels | meaning |\n|---|---|---|---|\n")
	for _, m := range All() {
		var labels []string
		for _, l := range m.Labels {
			labels = append(labels, "`"+strings.ReplaceAll(string(l), ".", "_")+"`")
		}
		fmt.Fprintf(&b, "| `%s` <br> `%s` | %s | %s | %s |\n", m.Prometheus(), m.Name, m.Type, strings.Join(labels, " "), m.Doc)
	}
	return b.String()
}

// collect returns how many series each metric has.
func collect(t *testing.T, reader metric.Reader) map[string]int {
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &all))
	series := map[string]int{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				series[m.Name] = len(data.DataPoints)
			case metricdata.Sum[float64]:
				series[m.Name] = len(data.DataPoints)
			case metricdata.Gauge[float64]:
				series[m.Name] = len(data.DataPoints)
			}
		}
	}
	return series
}

func call(t *testing.T, tel *Telemetry, e Ended, nested bool) {
	_, c := tel.StartCall(t.Context(), nested)
	c.End(e)
}

// Neither the names that clients make up nor a folder of plugins that never ends makes
// series without bound.
func TestSeriesAreBounded(t *testing.T) {
	reader := metric.NewManualReader()
	tel, err := New(Config{Meters: metric.NewMeterProvider(metric.WithReader(reader))})
	require.NoError(t, err)
	require.NoError(t, tel.Observe(func(_ context.Context, o Observer) {
		for i := range 2000 {
			o.Set(KVKeys, 1, o.Plugin(fmt.Sprint("plugin", i), i%2 == 0))
		}
	}))

	for i := range 2000 {
		call(t, tel, Ended{Tool: fmt.Sprint("guessed", i), Failure: "not_found"}, false)
		tool := fmt.Sprint("tool", i)
		call(t, tel, Ended{Tool: tool, Known: true}, i%2 == 0)
		_, r := tel.StartRequest(t.Context(), MCPRequest{Method: fmt.Sprint("method", i)})
		r.End("", false)
		tel.Used(tool, 1, time.Second)
		tel.Egress(Exchange{Tool: tool, Result: "answered", Sent: 1, Received: 1})
		tel.RunEnded(tool, "succeeded", "", time.Second)
	}

	series := collect(t, reader)
	require.Equal(t, map[string]int{
		CallDuration.Name: maxNames + 3, // unknown ones, and two callers of the others
		MCPDuration.Name:  1,
		ToolFuel.Name:     maxNames + 1, ToolCPU.Name: maxNames + 1, EgressDuration.Name: maxNames + 1, EgressIO.Name: 2 * (maxNames + 1), RunDuration.Name: maxNames + 1,
		KVKeys.Name: maxNames + 2, // unknown and other ones
	}, series)
}

// After Close nothing is observed any more.
func TestClose(t *testing.T) {
	reader := metric.NewManualReader()
	tel, err := New(Config{Meters: metric.NewMeterProvider(metric.WithReader(reader))})
	require.NoError(t, err)
	require.NoError(t, tel.Close(), "nothing is observed yet")
	require.NoError(t, tel.Observe(func(_ context.Context, o Observer) { o.Set(RunSlots, 1) }))
	require.Equal(t, map[string]int{RunSlots.Name: 1}, collect(t, reader))

	require.NoError(t, tel.Close())
	require.Empty(t, collect(t, reader))
}
