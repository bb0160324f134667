package exporters

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collecttraces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/server/telemetry"
)

// collector is an OTLP receiver.
type collector struct {
	mu    sync.Mutex
	sent  map[string][][]byte // bodies by path
	hangs chan struct{}       // nil: it answers
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.hangs != nil {
		select {
		case <-c.hangs:
		case <-r.Context().Done():
		}
		return
	}
	body, _ := io.ReadAll(r.Body)
	if zipped, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
		body, _ = io.ReadAll(zipped)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent[r.Header.Get("Authorization")+" "+r.URL.Path] = append(c.sent[r.Header.Get("Authorization")+" "+r.URL.Path], body)
}

// At the end everything is sent: spans, metrics, and what the environment says of the
// process.
func TestOTLP(t *testing.T) {
	clear(t)
	received := &collector{sent: map[string][][]byte{}}
	s := httptest.NewServer(received)
	defer s.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20collect")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	e, err := Open(t.Context(), Config{Version: "v1.2.3", Instance: "here:7070", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.Nil(t, e.Metrics, "nobody scrapes it")
	tel, err := telemetry.New(e.Config)
	require.NoError(t, err)
	_, call := tel.StartCall(t.Context(), false)
	call.End(telemetry.Ended{Tool: "echo", Known: true})
	e.CloseWithin(time.Minute, slog.New(slog.DiscardHandler))

	var traces collecttraces.ExportTraceServiceRequest
	require.Len(t, received.sent["Bearer collect /v1/traces"], 1)
	require.NoError(t, proto.Unmarshal(received.sent["Bearer collect /v1/traces"][0], &traces))
	require.Equal(t, "execute_tool echo", traces.ResourceSpans[0].ScopeSpans[0].Spans[0].Name)
	about := map[string]string{}
	for _, a := range traces.ResourceSpans[0].Resource.Attributes {
		about[a.Key] = a.Value.GetStringValue()
	}
	require.Equal(t, "toolhost v1.2.3 here:7070 test", about["service.name"]+" "+about["service.version"]+" "+about["service.instance.id"]+" "+about["deployment.environment.name"])

	var metrics collectmetrics.ExportMetricsServiceRequest
	require.Len(t, received.sent["Bearer collect /v1/metrics"], 1)
	require.NoError(t, proto.Unmarshal(received.sent["Bearer collect /v1/metrics"][0], &metrics))
	require.Equal(t, telemetry.CallDuration.Name, metrics.ResourceMetrics[0].ScopeMetrics[0].Metrics[0].Name)
}

// A collector that does not answer delays the end by the time limit, and calls not at all.
func TestCollectorHangs(t *testing.T) {
	clear(t)
	received := &collector{hangs: make(chan struct{})}
	s := httptest.NewServer(received)
	defer s.Close()
	defer close(received.hangs)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL)
	var logs testlog.Buffer
	log := slog.New(slog.NewTextHandler(&logs, nil))
	e, err := Open(t.Context(), Config{Logger: log})
	require.NoError(t, err)
	tel, err := telemetry.New(e.Config)
	require.NoError(t, err)
	for range 10_000 { // more than a batch holds
		_, call := tel.StartCall(context.Background(), false)
		call.End(telemetry.Ended{Tool: "echo", Known: true})
	}

	e.CloseWithin(50*time.Millisecond, log)
	require.Contains(t, logs.String(), "the last metrics or traces were not sent")
}
