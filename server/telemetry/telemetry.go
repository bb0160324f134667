// Package telemetry measures and traces a Service with OpenTelemetry. It imports only the
// OpenTelemetry API: the program chooses the exporters. Names follow the semantic
// conventions for GenAI and MCP. Attributes never contain arguments, results, error
// messages, or the names of sessions and users.
package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the name of the instrumentation.
const Scope = "github.com/toolhost/toolhost/server"

// Config sets the destinations of measurements and spans. Zero fields select OpenTelemetry's
// global providers, which drop everything unless the program sets them.
type Config struct {
	Meters  metric.MeterProvider
	Tracers trace.TracerProvider
}

// Telemetry holds the instruments of a Service. It is safe for concurrent use.
type Telemetry struct {
	meter      metric.Meter
	tracer     trace.Tracer
	histograms map[*Metric]metric.Float64Histogram
	counters   map[*Metric]metric.Float64Counter
	observed   map[*Metric]metric.Float64Observable
	observing  metric.Registration // nil before Observe
	tools      names
	plugins    names
	options    options
}

// recorded lists the metrics that are updated as events happen, with their buckets. All
// others are read at collection.
var recorded = map[*Metric][]float64{
	CallDuration: callBounds, MCPDuration: callBounds, EgressDuration: callBounds, RunDuration: runBounds, RunQueue: runBounds,
	ToolFuel: nil, ToolCPU: nil, EgressIO: nil, Approvals: nil, Reloads: nil,
}

// New creates the instruments. The error says which ones the provider rejected.
func New(cfg Config) (*Telemetry, error) {
	if cfg.Meters == nil {
		cfg.Meters = otel.GetMeterProvider()
	}
	if cfg.Tracers == nil {
		cfg.Tracers = otel.GetTracerProvider()
	}
	t := &Telemetry{
		meter: cfg.Meters.Meter(Scope), tracer: cfg.Tracers.Tracer(Scope),
		histograms: map[*Metric]metric.Float64Histogram{}, counters: map[*Metric]metric.Float64Counter{}, observed: map[*Metric]metric.Float64Observable{},
	}

	var errs []error
	for _, m := range all {
		errs = append(errs, t.make(m))
	}
	return t, errors.Join(errs...)
}

func (t *Telemetry) make(m *Metric) (err error) {
	bounds, sync := recorded[m]
	about, unit := metric.WithDescription(m.Doc), metric.WithUnit(m.Unit)
	switch {
	case m.Type == Histogram:
		t.histograms[m], err = t.meter.Float64Histogram(m.Name, about, unit, metric.WithExplicitBucketBoundaries(bounds...))
	case sync:
		t.counters[m], err = t.meter.Float64Counter(m.Name, about, unit)
	case m.Type == Counter:
		t.observed[m], err = t.meter.Float64ObservableCounter(m.Name, about, unit)
	default:
		t.observed[m], err = t.meter.Float64ObservableGauge(m.Name, about, unit)
	}
	return err
}

// Observe registers collect to be called at each collection, from any goroutine, until
// Close. The function collect must return before ctx is done, having reported the values
// that it has by then.
func (t *Telemetry) Observe(collect func(ctx context.Context, o Observer)) (err error) {
	var instruments []metric.Observable
	for _, o := range t.observed {
		instruments = append(instruments, o)
	}
	t.observing, err = t.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		collect(ctx, Observer{t, o})
		return nil
	}, instruments...)
	return err
}

// Close unregisters the function passed to Observe, and waits for it to return.
func (t *Telemetry) Close() error {
	if t.observing == nil {
		return nil
	}
	return t.observing.Unregister()
}

// An Observer receives the values of metrics when they are collected.
type Observer struct {
	t  *Telemetry
	to metric.Observer
}

// Set reports the value of a metric that is read at collection.
func (o Observer) Set(m *Metric, value float64, labels ...attribute.KeyValue) {
	o.to.ObserveFloat64(o.t.observed[m], value, metric.WithAttributes(labels...))
}

// Plugin returns the attribute for a plugin's name. Known means that the plugin is loaded.
func (o Observer) Plugin(name string, known bool) attribute.KeyValue {
	return Plugin.String(o.t.plugins.bound(name, known))
}

// Tool returns the attribute for a tool's name. Known means that the tool exists.
func (t *Telemetry) Tool(name string, known bool) attribute.KeyValue {
	return ToolName.String(t.tools.bound(name, known))
}

// An Exchange is an HTTP request of a plugin.
type Exchange struct {
	Tool           string // name of the tool, as agents know it
	Result         string // answered, failed or refused
	Duration       time.Duration
	Sent, Received int64 // size of the bodies, in bytes
}

// Egress records an HTTP request of a plugin.
func (t *Telemetry) Egress(x Exchange) {
	ctx, tool := context.Background(), t.Tool(x.Tool, true)
	t.histograms[EgressDuration].Record(ctx, x.Duration.Seconds(), metric.WithAttributes(tool, Result.String(x.Result)))
	for direction, n := range map[string]int64{"transmit": x.Sent, "receive": x.Received} {
		if n > 0 {
			t.counters[EgressIO].Add(ctx, float64(n), metric.WithAttributes(tool, IODirection.String(direction)))
		}
	}
}

// Used records the cost of a tool call, or of a part of a run.
func (t *Telemetry) Used(tool string, fuel int64, cpu time.Duration) {
	ctx, with := context.Background(), t.options.of(labels{tool: t.tools.bound(tool, true)}).add
	t.counters[ToolFuel].Add(ctx, float64(fuel), with...)
	t.counters[ToolCPU].Add(ctx, cpu.Seconds(), with...)
}

// Count adds one to a counter that is updated as events happen.
func (t *Telemetry) Count(m *Metric, labels ...attribute.KeyValue) {
	t.counters[m].Add(context.Background(), 1, metric.WithAttributes(labels...))
}

// RunEnded records the end of a run. Kind is the kind of the run's error, or empty if it has
// none.
func (t *Telemetry) RunEnded(tool, status, kind string, took time.Duration) {
	labels := []attribute.KeyValue{t.Tool(tool, true), Status.String(status)}
	if kind != "" {
		labels = append(labels, ErrorType.String(kind))
	}
	t.histograms[RunDuration].Record(context.Background(), took.Seconds(), metric.WithAttributes(labels...))
}

// RunStarted records how long a run waited in the queue.
func (t *Telemetry) RunStarted(queued time.Duration) {
	t.histograms[RunQueue].Record(context.Background(), max(0, queued).Seconds())
}
