package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/telemetry"
)

// recorder records calls: in figures, in traces and metrics, and in the audit log.
type recorder struct {
	figures   *Figures
	telemetry *telemetry.Telemetry
	audit     auditor
	log       *slog.Logger
}

// record is the stage that records how a call ends, whatever becomes of it.
func (r recorder) record(next next) next {
	return func(ctx context.Context, c call) (abi.Result, error) {
		began := time.Now()
		c.note = &callNote{tool: c.Tool}
		if c.outer != nil {
			c.note.from(c.outer)
		}
		ctx, span := r.telemetry.StartCall(ctx, c.outer != nil)
		answer, err := next(ctx, c)

		counted := answer
		if c.note.followed {
			counted.Usage = abi.Usage{}
		}
		r.figures.add(*c.note, c.Session, began, counted, err)
		span.End(c.note.ended(counted, err))
		r.audit.call(*c.note, c.Request, began, counted, err)
		if ctx.Err() != nil && c.outer == nil {
			r.unresolved(ctx, c, answer)
		}
		return answer, err
	}
}

// from notes the call that makes this one.
func (n *callNote) from(outer *origin) {
	n.outer, n.by, n.unlisted = outer.call.ID, outer.tool.Name, outer.listed.Add(1) > maxListed
}

// unresolved logs a call whose caller has left without its answer: its connection was
// closed or timed out, or it canceled the call.
func (r recorder) unresolved(ctx context.Context, c call, answer abi.Result) {
	if errors.Is(context.Cause(ctx), ErrAskAgain) { // it is there, and asks its user
		return
	}
	became := "canceled"
	if answer.Kind == abi.Success || answer.Kind == abi.ToolError {
		became = "finished, not delivered"
	}
	r.log.Info("the caller left before the call was answered",
		"tool", clip(c.Tool, maxProblem), "session", c.Session, "call", c.note.id, "became", became, "cause", context.Cause(ctx))
}
