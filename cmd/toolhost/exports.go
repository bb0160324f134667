package main

import (
	"cmp"
	"context"
	"time"

	"github.com/toolhost/toolhost/cmd/toolhost/internal/exporters"
)

// exportGrace is how long a server, before it exits, waits for its last metrics and
// traces to be sent.
const exportGrace = 5 * time.Second

// openExports opens the exporters for metrics and traces. If scraped is set, there is a
// page for Prometheus.
func (a *app) openExports(ctx context.Context, scraped bool) (end func(), err error) {
	instance := cmp.Or(hostName(a.config.listen), "unnamed")
	a.exports, err = exporters.Open(ctx, exporters.Config{Version: version(), Instance: instance, Scraped: scraped, Logger: a.logger()})
	if err != nil {
		return nil, &usageError{err, "see Sending over OTLP in docs/metrics.md"}
	}
	return func() { a.exports.CloseWithin(exportGrace, a.logger()) }, nil
}
