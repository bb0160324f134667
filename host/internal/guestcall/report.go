package guestcall

import (
	"fmt"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/answer"
)

// Limits of a progress report. Longer texts are cut.
const (
	maxReport  = 8 << 10 // bytes of a request
	maxStatus  = 512     // bytes
	maxUnit    = 32      // bytes
	maxSummary = 1000    // bytes
)

// reportOperations reports what the tool is doing.
var reportOperations = map[string]Operation{"report": {func(*Call) bool { return true }, "", atOnce(reportOperation)}}

// reportOperation takes {"status", "unit", "summary"}, at least one of them.
func reportOperation(c *Call, request []byte) int32 {
	if len(request) > maxReport {
		return c.Refuse(abi.CallLimit, "limit", fmt.Sprintf("a report has at most %d bytes", maxReport))
	}
	var in struct{ Status, Unit, Summary *string }
	if decodeStrict(request, &in) != nil || in.Status == nil && in.Unit == nil && in.Summary == nil {
		return c.Refuse(abi.CallInvalid, "invalid", `expected {"status": text, "unit": text, "summary": text}, or some of them`)
	}

	if in.Summary != nil {
		c.Answer.Summary = answer.OneLine(*in.Summary, maxSummary)
	}
	if in.Unit != nil {
		c.Said.Unit = answer.OneLine(*in.Unit, maxUnit)
	}
	if in.Status != nil {
		c.Said.Status = answer.OneLine(*in.Status, maxStatus)
		c.SayProgress()
	}
	return c.respond([]byte("{}"))
}

// SayProgress passes the latest report of the call on to its observers.
func (c *Call) SayProgress() {
	if c.OnProgress != nil {
		c.Outside(func() { c.OnProgress(c.Said) })
	}
}
