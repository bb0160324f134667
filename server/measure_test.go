package server

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/server/telemetry"
)

// meter returns a configuration that measures, and what reads the values: counts of
// histograms, values of all others, by name and labels.
func meter(t *testing.T) (telemetry.Config, func() map[string]float64) {
	reader := metric.NewManualReader()
	return telemetry.Config{Meters: metric.NewMeterProvider(metric.WithReader(reader))}, func() map[string]float64 {
		var all metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(context.Background(), &all))
		values := map[string]float64{}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				switch data := m.Data.(type) {
				case metricdata.Histogram[float64]:
					for _, p := range data.DataPoints {
						values[seriesName(m.Name, p.Attributes)] = float64(p.Count)
					}
				case metricdata.Sum[float64]:
					for _, p := range data.DataPoints {
						values[seriesName(m.Name, p.Attributes)] = p.Value
					}
				case metricdata.Gauge[float64]:
					for _, p := range data.DataPoints {
						values[seriesName(m.Name, p.Attributes)] = p.Value
					}
				}
			}
		}
		return values
	}
}

func seriesName(name string, labels attribute.Set) string {
	for _, l := range labels.ToSlice() {
		name += " " + l.Value.AsString()
	}
	return name
}

// Calls are counted by tool, outcome and caller, runs by tool and end; names that do not
// exist are one series.
func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg, read := meter(t)
		s := open(t, Config{Telemetry: cfg, AuditDir: t.TempDir()}, "echo", "fails", "traps", "spin", "chatty", "sleeper", "connect", "dangerous")
		for tool, n := range map[string]int{"echo": 3, "fails": 2, "traps": 1, "connect": 1, "nothing": 1, "guess": 1, "dangerous": 1, CheckBackground: 1} {
			for range n {
				_, _ = s.Call(t.Context(), Request{Session: alice, Tool: tool})
			}
		}
		_, _ = s.Call(t.Context(), Request{Session: alice, Tool: "echo", Args: json.RawMessage(`[]`)})
		_, _ = s.Call(t.Context(), Request{Session: alice, Tool: "spin", Limits: Limits{Fuel: 1000}})

		ends, err := s.Session(alice).Spawn(t.Context(), SpawnRequest{Tool: "chatty"})
		require.NoError(t, err)
		_, err = s.Session(alice).Spawn(t.Context(), SpawnRequest{Tool: "sleeper"})
		require.NoError(t, err)
		parks, err := s.Call(t.Context(), Request{Session: alice, Tool: "chatty", ParkAfter: time.Second})
		require.NoError(t, err)
		require.Contains(t, string(parks.Value), "Still running")
		s.agent(alice, CheckBackground, fmt.Sprintf(`{"task_id":%q,"wait_seconds":60}`, ends.TaskID))
		time.Sleep(time.Minute) // until the other one has ended too
		synctest.Wait()

		v := read()
		for series, want := range map[string]float64{
			"gen_ai.execute_tool.duration echo client":                        3,
			"gen_ai.execute_tool.duration tool_error fails client":            2,
			"gen_ai.execute_tool.duration trap traps client":                  1,
			"gen_ai.execute_tool.duration connection_required connect client": 1,
			"gen_ai.execute_tool.duration not_found _unknown client":          2,
			"gen_ai.execute_tool.duration denied dangerous client":            1,
			"gen_ai.execute_tool.duration fuel spin client":                   1,
			"gen_ai.execute_tool.duration chatty client":                      1,
			"gen_ai.execute_tool.duration check_background client":            2,
			"toolhost.run.duration chatty succeeded":                          2,
			"toolhost.run.queue.duration":                                     2,
			"toolhost.runs running":                                           1,
			"toolhost.runs parked":                                            0,
			"toolhost.runs.spawned":                                           3,
			"toolhost.plugin.calls success":                                   5,
			"toolhost.plugin.calls fuel":                                      1,
			"toolhost.calls.active running":                                   1,
			"toolhost.approvals.waiting":                                      0,
			"toolhost.plugins":                                                8,
			"toolhost.tools":                                                  8,
			"toolhost.store.up":                                               1,
			"toolhost.audit.lost":                                             0,
			"toolhost.connections":                                            0,
		} {
			require.Equal(t, want, v[series], "%s of %v", series, v)
		}
		require.Greater(t, v["toolhost.tool.fuel spin"], 999.0)
		require.Positive(t, v["toolhost.tool.fuel chatty"])
		require.Positive(t, v["toolhost.audit.events"])
		require.Positive(t, v["toolhost.memory.limit"])
		for series := range v {
			require.NotContains(t, series, "alice")
			require.NotContains(t, series, "toolhost.cluster", "no engine is shared")
			require.False(t, strings.Contains(series, "guess") || strings.Contains(series, "nothing"), series)
		}

		require.NoError(t, s.Close(t.Context()))
		require.NotContains(t, read(), "toolhost.runs running", "it is closed")
	})
}

// A store that does not answer is reported, and costs a collection two seconds.
func TestMetricsWithoutStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg, read := meter(t)
		away := &awayEngine{Engine: memory.New()}
		open(t, Config{Telemetry: cfg, Engine: away}, "echo")
		require.Equal(t, 1.0, read()["toolhost.store.up"])
		require.Equal(t, 1.0, read()["toolhost.cluster.hosts live"])
		require.Equal(t, 64.0, read()["toolhost.cluster.slots"])

		away.hangs.Store(true)
		began := time.Now()
		v := read()
		require.Equal(t, 0.0, v["toolhost.store.up"])
		require.Equal(t, 1.0, v["toolhost.plugins"], "the rest is there")
		require.Equal(t, measureWithin, time.Since(began))
		away.hangs.Store(false)
	})
}

// awayEngine is an engine that can be told to answer no question.
type awayEngine struct {
	engine.Engine
	hangs atomic.Bool
}

func (e *awayEngine) List(ctx context.Context, q engine.Query) ([]engine.Run, error) {
	if e.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return e.Engine.List(ctx, q)
}
