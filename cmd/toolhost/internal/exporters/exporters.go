// Package exporters exports metrics and traces: it serves metrics in the Prometheus format,
// and sends both over OTLP if the environment configures an endpoint. It is the only package
// that imports the OpenTelemetry SDK.
package exporters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/toolhost/toolhost/server/telemetry"
)

const (
	// maxSeries limits the number of series per metric, in case the limits on label values
	// fail.
	maxSeries = 16384
	// maxScrapes is the maximum number of concurrent scrapes.
	maxScrapes = 4
)

// Config selects the exporters and identifies the process.
type Config struct {
	Version, Instance string // version of the program, and a name that distinguishes this process from others
	Scraped           bool   // whether to serve metrics to Prometheus
	Logger            *slog.Logger
}

// Exporters receive metrics and traces. Close them once everything that records metrics and
// traces has ended.
type Exporters struct {
	telemetry.Config              // configuration to pass to the service
	Metrics          http.Handler // page for Prometheus; nil without Config.Scraped
	closers          []func(context.Context) error
}

// Open creates the exporters that Config and the environment (OTEL_*) select. If a variable
// is invalid or not supported, the error names it.
func Open(ctx context.Context, cfg Config) (*Exporters, error) {
	traces, err := wanted("TRACES")
	if err != nil {
		return nil, err
	}
	metrics, err := wanted("METRICS")
	if err != nil {
		return nil, err
	}

	from, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "toolhost"), attribute.String("service.version", cfg.Version), attribute.String("service.instance.id", cfg.Instance),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { cfg.Logger.Warn("telemetry is not exported", "error", err) }))

	e := &Exporters{}
	if traces {
		err = e.openTraces(ctx, from)
	}
	if err == nil && (metrics || cfg.Scraped) {
		err = e.openMetrics(ctx, from, cfg, metrics)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close(ctx))
	}
	return e, nil
}

// openTraces sends spans over OTLP. The batch is bounded: spans are dropped rather than
// blocking calls.
func (e *Exporters) openTraces(ctx context.Context, from *resource.Resource) error {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return err
	}

	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(from))
	e.Tracers, e.closers = provider, append(e.closers, provider.Shutdown)
	if named := os.Getenv("OTEL_PROPAGATORS"); named == "" || slices.Contains(list(named), "tracecontext") {
		otel.SetTextMapPropagator(propagation.TraceContext{})
	}
	return nil
}

// openMetrics creates the handler for Prometheus, and sends metrics over OTLP. Both read the
// same instruments.
func (e *Exporters) openMetrics(ctx context.Context, from *resource.Resource, cfg Config, sent bool) error {
	options := []metric.Option{metric.WithResource(from), metric.WithCardinalityLimit(maxSeries)}
	if cfg.Scraped {
		registry := prometheus.NewRegistry()
		registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		reader, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
		if err != nil {
			return err
		}
		options = append(options, metric.WithReader(reader))
		e.Metrics = promhttp.HandlerFor(registry, promhttp.HandlerOpts{
			ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn), MaxRequestsInFlight: maxScrapes, EnableOpenMetrics: true,
		})
	}
	if sent {
		exporter, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return err
		}
		options = append(options, metric.WithReader(metric.NewPeriodicReader(exporter)))
	}

	provider := metric.NewMeterProvider(options...)
	e.Meters, e.closers = provider, append(e.closers, provider.Shutdown)
	return nil
}

// Close sends pending metrics and spans until ctx is done, and stops the exporters.
func (e *Exporters) Close(ctx context.Context) error {
	var errs []error
	for _, c := range e.closers {
		errs = append(errs, c(ctx))
	}
	return errors.Join(errs...)
}

// CloseWithin is like Close, but with a time limit. It logs an error instead of returning
// it.
func (e *Exporters) CloseWithin(limit time.Duration, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		log.Warn("the last metrics or traces were not sent", "error", err)
	}
}

// wanted reports whether the environment selects OTLP for a signal, which is TRACES or
// METRICS. OTLP needs an endpoint.
func wanted(signal string) (bool, error) {
	endpoint := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") + os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT")
	if endpoint == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}

	sent := true
	if named := os.Getenv("OTEL_" + signal + "_EXPORTER"); named != "" {
		sent = slices.Contains(list(named), "otlp")
		for _, name := range list(named) {
			if !slices.Contains([]string{"otlp", "none", "prometheus"}, name) || name == "prometheus" && signal == "TRACES" {
				return false, fmt.Errorf("OTEL_%s_EXPORTER: expected otlp or none, found %q", signal, name)
			}
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		switch protocol := os.Getenv(name); {
		case !sent || protocol == "":
			continue
		case protocol != "http/protobuf":
			return false, fmt.Errorf("%s: expected http/protobuf, found %q: name the HTTP port of the collector, usually 4318", name, protocol)
		}
		break
	}
	return sent, nil
}

func list(text string) []string {
	names := strings.Split(text, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return names
}
