package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/telemetry"
)

// recorder records calls: in figures, in traces and metrics, and in the audit log.
type recorder struct {
	figures   *record.Figures
	telemetry *telemetry.Telemetry
	audit     record.Auditor
	log       *slog.Logger
}

// record is the stage that records how a call ends, whatever becomes of it.
func (r recorder) record(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		began := time.Now()
		c.note = &record.Note{Tool: c.Tool}
		if c.outer != nil {
			n := c.note
			n.Outer, n.By, n.Unlisted = c.outer.call.ID, c.outer.tool.Name, c.outer.listed.Add(1) > maxListed
		}
		ctx, span := r.telemetry.StartCall(ctx, c.outer != nil)
		answer, err := next(ctx, c)

		counted := answer
		if c.note.Followed {
			counted.Usage = abi.Usage{}
		}
		r.figures.Add(*c.note, c.Session, began, counted, err)
		span.End(c.note.Ended(counted, err))
		r.audit.Call(*c.note, c.Session, c.DryRun, began, counted, err)
		if ctx.Err() != nil && c.outer == nil {
			r.unresolved(ctx, c, answer)
		}
		return answer, err
	}
}

// unresolved logs a call whose caller left without an answer: its connection was closed
// or timed out, or it canceled the call.
func (r recorder) unresolved(ctx context.Context, c call, answer abi.Result) {
	if errors.Is(context.Cause(ctx), ErrAskAgain) { // it is there, and asks its user
		return
	}
	became := "canceled"
	if answer.Kind == abi.Success || answer.Kind == abi.ToolError {
		became = "finished, not delivered"
	}
	r.log.Info("the caller left before the call was answered",
		"tool", reason.Clip(c.Tool, reason.MaxProblem), "session", c.Session, "call", c.note.ID, "became", became, "cause", context.Cause(ctx))
}
