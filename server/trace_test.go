package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	tracesdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/telemetry"
)

// tracer returns a configuration that traces, and the spans that have ended.
func tracer(t *testing.T) (telemetry.Config, func(name string) tracetest.SpanStub) {
	spans := tracetest.NewInMemoryExporter()
	provider := tracesdk.NewTracerProvider(tracesdk.WithSyncer(spans))
	return telemetry.Config{Tracers: provider}, func(name string) tracetest.SpanStub {
		t.Helper()
		var names []string
		for _, s := range spans.GetSpans() {
			if s.Name == name {
				return s
			}
			names = append(names, s.Name)
		}
		require.Contains(t, names, name)
		return tracetest.SpanStub{}
	}
}

func labelsOf(s tracetest.SpanStub) map[string]any {
	all := map[string]any{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

// A call is a span below that of its caller, and a call that a tool makes is one below that.
// Neither has arguments, results or texts of errors.
func TestTraceOfCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg, span := tracer(t)
		s := openCallers(t, Config{Telemetry: cfg}, map[string]aCaller{"outer": {program: calling("echo", `{"password":"hunter2"}`), may: []string{"echo"}}}, "echo", "panics")
		parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true})
		ctx := trace.ContextWithRemoteSpanContext(t.Context(), parent)
		for _, tool := range []string{"outer", "panics", "hunter2"} {
			_, _ = s.Call(ctx, Request{Session: alice, Tool: tool, Args: []byte(`{"password":"hunter2"}`)})
		}

		outer := span("execute_tool outer")
		require.Equal(t, parent.SpanID(), outer.Parent.SpanID())
		require.Equal(t, parent.TraceID(), outer.SpanContext.TraceID())
		require.Equal(t, trace.SpanKindInternal, outer.SpanKind)
		require.Equal(t, codes.Unset, outer.Status.Code)
		of := labelsOf(outer)
		require.Positive(t, of["toolhost.fuel"])
		require.Regexp(t, "^call_", of["toolhost.call.id"])
		require.Equal(t, "outer", of["gen_ai.tool.name"])
		require.Equal(t, "execute_tool", of["gen_ai.operation.name"])
		require.NotContains(t, of, "error.type")

		inner := span("execute_tool echo")
		require.Equal(t, outer.SpanContext.SpanID(), inner.Parent.SpanID())

		broken := span("execute_tool panics")
		require.Equal(t, codes.Error, broken.Status.Code)
		require.Equal(t, "trap", labelsOf(broken)["error.type"])
		missing := span("execute_tool")
		require.Equal(t, "not_found", labelsOf(missing)["error.type"])
		for _, s := range []tracetest.SpanStub{outer, inner, broken, missing} {
			require.NotContains(t, fmt.Sprintf("%+v", s), "hunter2")
		}
	})
}

// A run is a trace of its own, which is linked to the call that has spawned it. A run that
// waits has a span for each piece, and none while it waits.
func TestTraceOfRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg, span := tracer(t)
		s := open(t, Config{Telemetry: cfg}, "chatty", "fails")
		for _, tool := range []string{"chatty", "fails"} {
			id := s.agent(alice, SpawnBackground, fmt.Sprintf(`{"tool":%q,"args":{}}`, tool))["task_id"]
			s.agent(alice, CheckBackground, fmt.Sprintf(`{"task_id":%q,"wait_seconds":60}`, id))
			run := span("execute_tool " + tool)
			require.Equal(t, id, labelsOf(run)["toolhost.run.id"])
			require.False(t, run.Parent.IsValid())
			require.Len(t, run.Links, 1)
			require.NotEqual(t, run.Links[0].SpanContext.TraceID(), run.SpanContext.TraceID())
		}

		chatty := span("execute_tool chatty")
		require.Equal(t, span("execute_tool "+SpawnBackground).SpanContext.SpanID(), chatty.Links[0].SpanContext.SpanID())
		require.GreaterOrEqual(t, chatty.EndTime.Sub(chatty.StartTime), 20*time.Second)
		require.Equal(t, string(abi.ToolError), labelsOf(span("execute_tool fails"))["error.type"])
	})
}

// Without a tracer that samples, records of runs keep no span.
func TestNoTrace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{Telemetry: telemetry.Config{Tracers: tracesdk.NewTracerProvider(tracesdk.WithSampler(tracesdk.NeverSample()))}}, "echo")
		run, err := s.Session(alice).Spawn(t.Context(), SpawnRequest{Tool: "echo"})
		require.NoError(t, err)
		stored, err := s.engine.Get(t.Context(), run.TaskID)
		require.NoError(t, err)
		require.NotContains(t, string(stored.Terms), "trace")
	})
}
