package exporters

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/telemetry"
)

// clear takes the variables of OpenTelemetry from the environment.
func clear(t *testing.T) {
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_RESOURCE_ATTRIBUTES",
	} {
		t.Setenv(name, "")
	}
}

func TestEnvironment(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"
	for name, test := range map[string]struct {
		env             []string
		traces, metrics bool
		want            string // of the error
	}{
		"nothing":                     {},
		"an exporter without address": {env: []string{"OTEL_TRACES_EXPORTER=otlp"}},
		"an endpoint":                 {env: []string{endpoint}, traces: true, metrics: true},
		"an endpoint for traces":      {env: []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:4318/v1/traces"}, traces: true},
		"an endpoint for metrics":     {env: []string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://127.0.0.1:4318/v1/metrics"}, metrics: true},
		"disabled":                    {env: []string{endpoint, "OTEL_SDK_DISABLED=TRUE"}},
		"no traces":                   {env: []string{endpoint, "OTEL_TRACES_EXPORTER=none"}, metrics: true},
		"metrics for Prometheus only": {env: []string{endpoint, "OTEL_METRICS_EXPORTER=prometheus"}, traces: true},
		"metrics for both":            {env: []string{endpoint, "OTEL_METRICS_EXPORTER=prometheus, otlp"}, traces: true, metrics: true},
		"the protocol":                {env: []string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"}, traces: true, metrics: true},
		"another protocol, unused":    {env: []string{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}},
		"another protocol, and none":  {env: []string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_TRACES_EXPORTER=none", "OTEL_METRICS_EXPORTER=none"}},
		"another for everything else": {env: []string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf", "OTEL_METRICS_EXPORTER=none"}, traces: true},
		"another protocol": {
			env: []string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, want: `OTEL_EXPORTER_OTLP_PROTOCOL: expected http/protobuf, found "grpc": name the HTTP port of the collector, usually 4318`,
		},
		"another exporter":            {env: []string{endpoint, "OTEL_TRACES_EXPORTER=zipkin"}, want: `OTEL_TRACES_EXPORTER: expected otlp or none, found "zipkin"`},
		"another exporter of metrics": {env: []string{endpoint, "OTEL_METRICS_EXPORTER=otlp,console"}, want: `OTEL_METRICS_EXPORTER: expected otlp or none, found "console"`},
		"prometheus has no traces":    {env: []string{endpoint, "OTEL_TRACES_EXPORTER=prometheus"}, want: `OTEL_TRACES_EXPORTER: expected otlp or none, found "prometheus"`},
	} {
		t.Run(name, func(t *testing.T) {
			clear(t)
			for _, e := range test.env {
				name, value, _ := strings.Cut(e, "=")
				t.Setenv(name, value)
			}
			traces, err := wanted("TRACES")
			if err == nil {
				var metrics bool
				metrics, err = wanted("METRICS")
				require.Equal(t, test.metrics, metrics)
			}
			if test.want != "" {
				require.EqualError(t, err, test.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.traces, traces)
		})
	}
}

// The page for Prometheus has each metric under the name that the documentation says.
func TestPage(t *testing.T) {
	clear(t)
	e, err := Open(t.Context(), Config{Version: "v1.2.3", Instance: "here:7070", Scraped: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close(context.Background())) }()
	tel, err := telemetry.New(e.Config)
	require.NoError(t, err)

	_, request := tel.StartRequest(t.Context(), telemetry.MCPRequest{Method: "tools/call"})
	_, call := tel.StartCall(t.Context(), false)
	call.End(telemetry.Ended{Tool: "echo", Known: true})
	request.End("", false)
	tel.Used("echo", 1, time.Second)
	tel.Egress(telemetry.Exchange{Tool: "echo", Result: "answered", Sent: 1})
	tel.RunStarted(time.Second)
	tel.RunEnded("echo", "succeeded", "", time.Second)
	tel.Count(telemetry.Approvals)
	tel.Count(telemetry.Reloads)
	require.NoError(t, tel.Observe(func(_ context.Context, o telemetry.Observer) {
		for _, m := range telemetry.All() {
			o.Set(m, 1) // of a metric that is recorded, it is dropped
		}
	}))

	for _, accept := range []string{"", "application/openmetrics-text; version=1.0.0"} {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		e.Metrics.ServeHTTP(w, r)
		text := w.Body.String()
		for _, m := range telemetry.All() {
			kind := " " + m.Type + "\n"
			name := m.Prometheus()
			if accept != "" { // OpenMetrics names the family of a counter without its suffix
				name = strings.TrimSuffix(name, "_total")
			}
			require.Contains(t, text, "# TYPE "+name+kind)
		}
		require.Contains(t, text, `service_version="v1.2.3"`)
		require.Contains(t, text, "go_goroutines")
		require.NotContains(t, text, "otel_scope")
	}
}
