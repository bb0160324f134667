package record

import (
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/telemetry"
)

// measureExchange records an HTTP request of a plugin.
func measureExchange(t *telemetry.Telemetry, tool string, x host.Exchange) {
	result := "answered"
	switch {
	case x.Refusal != "":
		result = "refused"
	case x.Err != "":
		result = "failed"
	}
	t.Egress(telemetry.Exchange{Tool: tool, Result: result, Duration: x.Duration, Sent: x.Sent, Received: x.Received})
}

// measureReload counts a reload that changed something.
func measureReload(t *telemetry.Telemetry, c plugins.Changes) {
	result := "ok"
	if len(c.Problems) > 0 {
		result = "problems"
	}
	t.Count(telemetry.Reloads, telemetry.Result.String(result))
}

// measureDecision counts a decision on a call that needs approval.
func measureDecision(t *telemetry.Telemetry, kind audit.Kind) {
	decision := map[audit.Kind]string{audit.Asked: "asked", audit.Approved: "approved", audit.Refused: "refused"}[kind]
	t.Count(telemetry.Approvals, telemetry.Decision.String(decision))
}
