//go:build unix

package httpapi_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	tracesdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/telemetry"
)

// BenchmarkTelemetry is what metrics, and metrics with a trace of each call, cost a warm call
// over HTTP, in processor time: of what a call does with its instruments, next to the same
// without a provider, and next to the call itself, whose client counts too. They take turns
// in rounds; the medians of the rounds are reported, and the quartiles of the shares.
func BenchmarkTelemetry(b *testing.B) {
	none := telemetry.Config{Meters: metricnoop.NewMeterProvider(), Tracers: tracenoop.NewTracerProvider()}
	metrics := telemetry.Config{Meters: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())), Tracers: none.Tracers}
	provider := tracesdk.NewTracerProvider(tracesdk.WithBatcher(tracetest.NewNoopExporter()))
	defer provider.Shutdown(context.Background())
	traces := telemetry.Config{Meters: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())), Tracers: provider}

	end := openMeasured(b, none)
	names, took := []string{"none", "metrics", "traces"}, map[string][]time.Duration{}
	instruments := map[string]*telemetry.Telemetry{}
	for i, cfg := range []telemetry.Config{none, metrics, traces} {
		t, err := telemetry.New(cfg)
		require.NoError(b, err)
		instruments[names[i]] = t
	}
	for b.Loop() {
		took["call"] = append(took["call"], each(b, 300, end.post))
		for _, name := range names {
			took[name] = append(took[name], each(b, 20_000, func() { instrument(instruments[name]) }))
		}
	}

	call := median(took["call"])
	b.ReportMetric(float64(call.Nanoseconds())/1000, "call-µs")
	for _, name := range names {
		cost := median(took[name])
		b.ReportMetric(float64(cost.Nanoseconds())/1000, name+"-µs")
		b.ReportMetric(100*float64(cost)/float64(call), name+"-%")
		b.ReportMetric(100*float64(took[name][len(took[name])*3/4])/float64(call), name+"-q3-%")
	}
	b.ReportMetric(0, "ns/op") // of all of them: says nothing
}

// instrument is what a call over HTTP does with its instruments.
func instrument(t *telemetry.Telemetry) {
	ctx, call := t.StartCall(telemetry.FromHeader(context.Background(), http.Header{}), false)
	_ = ctx
	t.Used("small", 1000, time.Microsecond)
	call.End(telemetry.Ended{Tool: "small", Known: true, Plugin: "small", ID: "call_0123", Fuel: 1000, CPU: time.Microsecond, Wait: time.Microsecond, Memory: 65536})
}

// each is the processor time of one of n calls of f.
func each(b *testing.B, n int, f func()) time.Duration {
	began := processorTime(b)
	for range n {
		f()
	}
	return (processorTime(b) - began) / time.Duration(n)
}

// measuredEnd is the HTTP API of a service.
type measuredEnd struct {
	b   *testing.B
	url string
}

func openMeasured(b *testing.B, cfg telemetry.Config) *measuredEnd {
	small := plugintest.Plugin{Manifest: plugintest.Manifest("small"), Invoke: plugintest.Do().Echo()}
	service, err := server.Open(b.Context(), server.Config{
		Folders:  []plugins.Folder{{Path: "zoo", FS: fstest.MapFS{"small.wasm": {Data: small.Wasm()}}}},
		CacheDir: plugintest.CacheDir(), Telemetry: cfg,
	})
	require.NoError(b, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	api := httpapi.New(service, httpapi.Config{})
	go func() { _ = api.Serve(l) }()
	b.Cleanup(func() {
		_ = api.Shutdown(context.Background())
		_ = service.Close(context.Background())
	})
	e := &measuredEnd{b, "http://" + l.Addr().String() + "/v1/calls"}
	e.post()
	return e
}

func (e *measuredEnd) post() {
	r, err := http.NewRequest(http.MethodPost, e.url, strings.NewReader(`{"tool":"small","args":{"x":1}}`))
	require.NoError(e.b, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Toolhost-Session", "default")
	resp, err := http.DefaultClient.Do(r)
	require.NoError(e.b, err)
	require.Equal(e.b, http.StatusOK, resp.StatusCode)
	var text [4096]byte
	for err == nil {
		_, err = resp.Body.Read(text[:])
	}
	_ = resp.Body.Close()
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
