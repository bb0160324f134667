package record

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/telemetry"
	"github.com/toolhost/toolhost/server/wire"
)

// gauges returns the values that a function reports, by metric and label.
func gauges(t *testing.T, observe func(o telemetry.Observer)) map[string]float64 {
	t.Helper()
	reader := metric.NewManualReader()
	instruments, err := telemetry.New(telemetry.Config{Meters: metric.NewMeterProvider(metric.WithReader(reader))})
	require.NoError(t, err)
	require.NoError(t, instruments.Observe(func(_ context.Context, o telemetry.Observer) { observe(o) }))
	t.Cleanup(func() { require.NoError(t, instruments.Close()) })

	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	values := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			gauge, _ := m.Data.(metricdata.Gauge[float64])
			for _, p := range gauge.DataPoints {
				name := m.Name
				for _, label := range p.Attributes.ToSlice() {
					name += " " + label.Value.AsString()
				}
				values[name] = p.Value
			}
		}
	}
	return values
}

func TestObserveHosts(t *testing.T) {
	values := gauges(t, func(o telemetry.Observer) {
		ObserveHosts(wire.Hosts{Hosts: []wire.Host{
			{State: wire.HostLive, Running: 2, PerHost: 4}, {State: wire.HostLive, Running: 1, PerHost: 4}, {State: wire.HostLost, Running: 9, PerHost: 9},
		}}, o)
	})
	require.Equal(t, map[string]float64{
		"toolhost.cluster.hosts live": 2, "toolhost.cluster.hosts lost": 1, "toolhost.cluster.running": 3, "toolhost.cluster.slots": 8, "toolhost.cluster.plugins.differing": 0,
	}, values)
}

// Plugins that are not loaded have no names in metrics.
func TestObserveKV(t *testing.T) {
	loaded := []*plugins.Plugin{{Manifest: &abi.Manifest{Name: "notes"}}}
	stores := wire.KVStores{Stores: []wire.KVStore{
		{Plugin: "notes", Keys: 1, Bytes: 10}, {Plugin: "notes", Keys: 2, Bytes: 20}, {Plugin: "gone", Keys: 4, Bytes: 40}, {Plugin: "away", Keys: 8, Bytes: 80},
	}}
	values := gauges(t, func(o telemetry.Observer) { ObserveKV(stores, loaded, o) })
	require.Len(t, values, 4)
	require.EqualValues(t, 3, values["toolhost.kv.keys notes"])
	require.NotContains(t, values, "toolhost.kv.keys gone")
}
