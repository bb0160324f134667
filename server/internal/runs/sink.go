package runs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/server/internal/shape"
)

// withSink lets the sink of a run follow the call, store its checkpoints, and ask it to stop.
func withSink(call host.Call, sink *output.Sink, log *slog.Logger) host.Call {
	id, session := call.ID, call.Session // or the closures would keep all of call
	call.Stdout, call.Stderr, call.Stopping = sink.Stdout(), sink.Stderr(), sink.Stopping()
	call.Progress = func(p host.Progress) {
		if p.Narration != "" {
			sink.Narrate(p.Narration)
		}
		if p.Status != "" {
			sink.Status(p.Status)
		}
		if p.Counted() {
			sink.Unit(p.Unit)
			sink.Progress(p.Done, max(p.Total, 0), p.Message)
		}
	}
	call.Used = func(soFar func() abi.Usage) { sink.Meter(func() engine.Cost { return shape.CostOf(soFar()) }) }
	call.Checkpoint = &host.Checkpoint{Load: sink.Restore, Save: func(ctx context.Context, data []byte) error {
		err := sink.Checkpoint(ctx, data)
		switch {
		case errors.Is(err, output.ErrNoRun):
			return fmt.Errorf("%w: %w", host.ErrDenied, err)
		case err != nil && ctx.Err() == nil:
			log.Warn("checkpoint not stored", "call", id, "session", session, "error", err)
		}
		return err
	}}
	call.Receive = func(ctx context.Context, after int64, wait time.Duration) ([]host.Message, error) {
		found, err := background.Receive(ctx, after, wait)
		switch {
		case errors.Is(err, output.ErrNoRun):
			return nil, fmt.Errorf("%w: %w", host.ErrDenied, err)
		case err != nil && ctx.Err() == nil:
			log.Warn("messages not received", "call", id, "session", session, "error", err)
		}
		all := make([]host.Message, len(found))
		for i, m := range found {
			all[i] = host.Message{ID: m.ID, At: m.At, By: m.By, Data: m.Data}
		}
		return all, err
	}
	return call
}

// maxSummary is the maximum length of the summary that a tool gives its run, in characters.
const maxSummary = 500

// Outcome turns the end of a call into the outcome of its run. The parameter limit is the time
// limit of the run.
func Outcome(ctx context.Context, sink *output.Sink, limit time.Duration, r abi.Result, err error) (background.Outcome, error) {
	sink.Cost(shape.CostOf(r.Usage))
	out := background.Outcome{ExitCode: r.ExitCode, Summary: output.Shorten(r.Summary, maxSummary), Diagnosis: shape.DiagnosisOf(err)}
	if len(r.Content) > 0 && (r.Kind == abi.Success || r.Kind == abi.ToolError) { // the agent does not see what a broken plugin left
		content, err := shape.JSON(r.Content)
		if err != nil {
			return out, err
		}
		out.Content = content
	}

	if r.Kind == abi.Success {
		out.Result = r.Value
		return out, nil
	}

	if r.Limit == abi.LimitTime {
		<-ctx.Done() // the run's own deadline, which is now
	}
	if waited, ok := errors.AsType[*host.WaitedError](err); ok && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return out, &background.Error{Kind: engine.KindTimeout, Message: fmt.Sprintf("The run's deadline of %v passed while it waited: %s", limit, waited.For), Err: err}
	}
	if err != nil && ctx.Err() != nil {
		return out, err // the manager knows why it ended the run
	}

	return out, &background.Error{Kind: shape.ErrorKind(r, err), Message: r.Error, Err: err}
}
