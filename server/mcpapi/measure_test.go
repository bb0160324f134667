package mcpapi_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	tracesdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/telemetry"
)

// A request is one span of kind server, below the span that its _meta names, or else the
// header of the HTTP request. A call to a tool has no other.
func TestTraceOfRequests(t *testing.T) {
	otel.SetTextMapPropagator(propagation.TraceContext{})
	bubble(t, func(t *testing.T) {
		spans := tracetest.NewInMemoryExporter()
		e := serveHTTP(t, server.Config{Telemetry: telemetry.Config{Tracers: tracesdk.NewTracerProvider(tracesdk.WithSyncer(spans))}})
		const header, meta = "00-11111111111111111111111111111111-1111111111111111-01", "00-22222222222222222222222222222222-2222222222222222-01"
		for name, test := range map[string]struct {
			method, params, meta string
			span, failure        string
			code                 string // of JSON-RPC
			parent               string // the beginning of its id
			links                int
		}{
			"a call": {
				method: "tools/call", params: `,"name":"echo","arguments":{"password":"hunter2"}`, meta: meta, span: "tools/call echo", parent: "2222", links: 1,
			},
			"a call below the header":  {method: "tools/call", params: `,"name":"echo","arguments":{"password":"hunter2"}`, span: "tools/call echo", parent: "1111"},
			"a parent that is invalid": {method: "tools/call", params: `,"name":"echo","arguments":{}`, meta: "00-hunter2", span: "tools/call echo", parent: "1111"},
			"a call that fails":        {method: "tools/call", params: `,"name":"fails","arguments":{}`, span: "tools/call fails", failure: "tool_error", parent: "1111"},
			"an unknown tool":          {method: "tools/call", params: `,"name":"hunter2","arguments":{}`, span: "tools/call", failure: "-32602", code: "-32602", parent: "1111"},
			"a list":                   {method: "tools/list", span: "tools/list", parent: "1111"},
		} {
			spans.Reset()
			capabilities := "{}"
			if test.meta != "" {
				capabilities = fmt.Sprintf(`{},"traceparent":%q`, test.meta)
			}
			e.ask("ana", capabilities, test.method, test.params, "traceparent", header)

			ended := spans.GetSpans()
			require.Len(t, ended, 1, name)
			span := ended[0]
			require.Equal(t, test.span, span.Name, name)
			require.Equal(t, trace.SpanKindServer, span.SpanKind)
			require.Contains(t, span.Parent.SpanID().String(), test.parent, name)
			require.Len(t, span.Links, test.links, name)
			labels := map[string]string{}
			for _, a := range span.Attributes {
				labels[string(a.Key)] = a.Value.String()
			}
			require.Equal(t, test.failure, labels["error.type"], name)
			require.Equal(t, test.code, labels["rpc.response.status_code"], name)
			require.Equal(t, test.failure != "", span.Status.Code == codes.Error, name)
			require.Equal(t, test.method, labels["mcp.method.name"])
			require.Equal(t, "2026-07-28", labels["mcp.protocol.version"])
			require.Equal(t, "tcp", labels["network.transport"])
			require.NotContains(t, fmt.Sprintf("%+v", span), "hunter2", name)
		}
	})
}
