package telemetry

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// FromHeader returns a context with the remote span from the headers of an HTTP request, if
// the program has set a propagator.
func FromHeader(ctx context.Context, h http.Header) context.Context {
	return otel.GetTextMapPropagator().Extract(ctx, propagation.HeaderCarrier(h))
}

// methods lists the MCP methods that have series of their own.
var methods = []string{
	"completion/complete", "initialize", "logging/setLevel", "notifications/cancelled", "notifications/initialized", "notifications/progress", "notifications/roots/list_changed",
	"ping", "prompts/get", "prompts/list", "resources/list", "resources/read", "resources/subscribe", "resources/templates/list", "resources/unsubscribe", "server/discover",
	"subscriptions/listen", "tasks/cancel", "tasks/get", "tasks/list", "tasks/result", "tasks/update", ToolsCall, "tools/list",
}

// MCPRequest is a request or notification from an MCP client.
type MCPRequest struct {
	Method  string
	Version string // version of the protocol
	HTTP    bool   // the request came over HTTP
	Header  http.Header
	Meta    map[string]any // _meta of the request's parameters
}

// Request is an active MCP request. If it calls a tool, the call shares the request's span.
type Request struct {
	t      *Telemetry
	method string
	began  time.Time
	span   trace.Span
	tool   atomic.Pointer[string] // as a label value; nil before it is known
}

type requestKey struct{}

// StartRequest starts the span of a request. Its parent is the span in _meta, or else the
// one in the HTTP header. If there are both, the new span links to the header's span.
func (t *Telemetry) StartRequest(ctx context.Context, in MCPRequest) (context.Context, *Request) {
	r := &Request{t: t, method: in.Method, began: time.Now()}
	if !slices.Contains(methods, in.Method) {
		r.method = Other
	}

	ctx = FromHeader(ctx, in.Header)
	carrier := trace.SpanContextFromContext(ctx)
	ctx = otel.GetTextMapPropagator().Extract(ctx, meta(in.Meta))
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(r.began)}
	if carrier.IsValid() && !carrier.Equal(trace.SpanContextFromContext(ctx)) {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: carrier}))
	}

	ctx, r.span = t.tracer.Start(ctx, r.method, options...)
	if r.span.IsRecording() {
		r.span.SetAttributes(in.attributes(r.method)...)
	}
	return context.WithValue(ctx, requestKey{}, r), r
}

func (in MCPRequest) attributes(method string) []attribute.KeyValue {
	all := []attribute.KeyValue{MCPMethod.String(method)}
	if method == ToolsCall {
		all = append(all, OperationName.String(ExecuteTool))
	}
	if len(in.Version) == len("2006-01-02") {
		all = append(all, MCPVersion.String(in.Version))
	}
	if in.HTTP {
		return append(all, Transport.String("tcp"), NetworkProtocol.String("http"))
	}
	return append(all, Transport.String("pipe"))
}

// End records the request. The failure is the code of a JSON-RPC error, tool_error, or
// empty for success. The parameter code says whether it is the code of a JSON-RPC error.
func (r *Request) End(failure string, code bool) {
	took := time.Since(r.began)
	l := labels{method: r.method, failure: failure}
	if tool := r.tool.Load(); tool != nil {
		l.tool = *tool
	}
	r.t.histograms[MCPDuration].Record(context.Background(), took.Seconds(), r.t.options.of(l).record...)

	if failure != "" && r.span.IsRecording() {
		r.span.SetAttributes(ErrorType.String(failure))
		r.span.SetStatus(codes.Error, "")
		if code {
			r.span.SetAttributes(RPCStatus.String(failure))
		}
	}
	r.span.End(trace.WithTimestamp(r.began.Add(took)))
}

// meta makes the properties of _meta a trace carrier.
type meta map[string]any

func (m meta) Get(key string) string {
	text, _ := m[key].(string)
	return text
}

func (m meta) Set(key, value string) { m[key] = value }

// Keys is not used when a context is extracted.
func (m meta) Keys() []string { return nil }

// A Call is an active tool call.
type Call struct {
	t       *Telemetry
	began   time.Time
	nested  bool
	span    trace.Span
	request *Request // the MCP request whose span the call shares; nil without one
}

// StartCall starts the span of a call, unless the call shares the span of an MCP request.
// Nested means that another tool makes the call.
func (t *Telemetry) StartCall(ctx context.Context, nested bool) (context.Context, *Call) {
	c := &Call{t: t, began: time.Now(), nested: nested}
	if r, ok := ctx.Value(requestKey{}).(*Request); ok && !nested && r.method == ToolsCall {
		c.request, c.span = r, r.span
		return ctx, c
	}
	ctx, c.span = t.tracer.Start(ctx, ExecuteTool, trace.WithTimestamp(c.began))
	return ctx, c
}

// Ended is the outcome and cost of a call.
type Ended struct {
	Tool    string // name of the tool, as agents know it
	Known   bool   // whether the tool exists
	Plugin  string // plugin of the tool; empty without one
	Failure string // code of the call's error, or its outcome; empty for success
	ID, Run string // ids of the call and of its run; empty if there is none
	Fuel    int64
	CPU     time.Duration
	Wait    time.Duration
	Memory  int64 // peak memory, in bytes
	Output  int64 // size of the output, in bytes
}

// End records the call.
func (c *Call) End(e Ended) {
	took := time.Since(c.began)
	tool := c.t.tools.bound(e.Tool, e.Known)
	l := labels{tool: tool, caller: "client", failure: e.Failure}
	if c.nested {
		l.caller = "tool"
	}
	c.t.histograms[CallDuration].Record(context.Background(), took.Seconds(), c.t.options.of(l).record...)
	if c.request != nil {
		c.request.tool.Store(&tool)
	}

	if c.span.IsRecording() {
		e.describe(c.span, c.request == nil)
	}
	if c.request == nil {
		c.span.End(trace.WithTimestamp(c.began.Add(took)))
	}
}

// describe sets the attributes that are known only at the end of a call. It does not name
// the span after a tool that does not exist, because the client chose that name.
func (e Ended) describe(span trace.Span, own bool) {
	all := make([]attribute.KeyValue, 0, 16)
	all = append(all, Fuel.Int64(e.Fuel), CPUTime.Float64(e.CPU.Seconds()), WaitTime.Float64(e.Wait.Seconds()), MemoryPeak.Int64(e.Memory), OutputBytes.Int64(e.Output))
	if e.Known {
		name := ToolsCall
		if own {
			name = ExecuteTool
		}
		span.SetName(name + " " + e.Tool)
		all = append(all, ToolName.String(e.Tool))
	}
	for _, a := range [...]attribute.KeyValue{Plugin.String(e.Plugin), CallID.String(e.ID), RunID.String(e.Run), Outcome.String(e.Failure)} {
		if a.Value.AsString() != "" {
			all = append(all, a)
		}
	}

	if own {
		all = append(all, OperationName.String(ExecuteTool), ToolType.String("function"))
		if e.Failure != "" {
			all = append(all, ErrorType.String(e.Failure))
			span.SetStatus(codes.Error, "")
		}
	}
	span.SetAttributes(all...)
}

// Link returns the current span in the format of traceparent, to be stored with a run. It is
// empty if the span is not recorded.
func Link(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier.Get("traceparent")
}

// StartRun starts a trace for the part of a run between two waits. The trace links to the
// span that spawned the run, which [Link] returned.
func (t *Telemetry) StartRun(ctx context.Context, tool, id, link string, attempt int) (context.Context, *Call) {
	options := []trace.SpanStartOption{trace.WithNewRoot()}
	from := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": link})
	if spawn := trace.SpanContextFromContext(from); spawn.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: spawn}))
	}
	c := &Call{t: t, began: time.Now()}
	ctx, c.span = t.tracer.Start(context.WithValue(ctx, requestKey{}, nil), ExecuteTool+" "+tool, append(options, trace.WithTimestamp(c.began))...)
	if c.span.IsRecording() {
		c.span.SetAttributes(RunID.String(id), Attempt.Int(attempt))
	}
	return ctx, c
}

// EndRun ends a trace that StartRun started. Unlike [Call.End], it records no duration.
func (c *Call) EndRun(e Ended) {
	if c.span.IsRecording() {
		e.describe(c.span, true)
	}
	c.span.End()
}
