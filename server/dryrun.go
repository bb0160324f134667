package server

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/dryrun"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// WithDryRun returns a context for a dry run, which changes and stores nothing:
//
//   - Readonly tools run, and are not parked. Any other tool does not run: the result describes
//     what a call would do, see [IsDryRun].
//   - Operations that would start, stop, answer or remove something make their checks and
//     return what they would do. Nobody is asked for approval, and no notice is acknowledged.
//
// It also applies to the calls that a Go tool makes with its context. An agent cannot
// end it.
func WithDryRun(ctx context.Context) context.Context { return dryrun.With(ctx) }

// InDryRun reports whether a context belongs to a dry run.
func InDryRun(ctx context.Context) bool { return dryrun.In(ctx) }

// dryRunType is the type in the value of a call that was only described.
const dryRunType = "dry_run"

// IsDryRun reports whether a result only describes what a call would do. Such results do not
// fit the output schema of the tool.
func IsDryRun(r abi.Result) bool {
	return r.Kind == abi.Success && bytes.HasPrefix(r.Value, []byte(`{"type":"`+dryRunType+`"`))
}

// dryRunAnswer is the answer in a dry run for a tool that is not readonly.
type dryRunAnswer struct {
	Type     string          `json:"type"`
	Tool     string          `json:"tool"`
	Args     json.RawMessage `json:"args"` // without secrets
	Approval abi.Approval    `json:"approval"`
	Grants   []string        `json:"grants,omitempty"`
	Limits   wire.CallLimits `json:"limits"`
	Message  string          `json:"message"`
}

// describer answers calls in dry runs.
type describer struct{ approvals *approval.Checker }

// describe is the stage that, in a dry run, answers for a tool that is not readonly with
// what a call would do.
func (d describer) describe(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		if !c.DryRun || c.tool.Tool.Hints.Readonly {
			return next(ctx, c)
		}
		return d.answer(ctx, c)
	}
}

// answer answers a call that was checked, and is not made.
func (d describer) answer(ctx context.Context, c call) (abi.Result, error) {
	limits := c.allowed
	what := dryRunAnswer{
		Type: dryRunType, Tool: c.tool.Name, Args: c.Args, Approval: c.tool.Settings.Approval(c.tool),
		Limits:  wire.CallLimits{OutputBytes: limits.Output, TimeoutSeconds: limits.Timeout.Seconds()},
		Message: "Dry run: " + c.tool.Name + " was not called, because it is not readonly. Its arguments fit.",
	}
	if c.tool.Plugin != nil {
		what.Grants, what.Limits.Fuel, what.Limits.MemoryBytes = c.tool.Plugin.Grant.Names(), limits.Fuel, limits.Memory
	}
	if public, secret := c.tool.PublicArgs(c.Args); secret {
		what.Args = public
	}
	_, hint, err := d.approvals.Preview(ctx, c.tool, approval.Call{Session: c.Session})
	if err != nil {
		return abi.Result{}, err
	}
	if hint != "" {
		what.Message += " " + hint
	}

	value, err := shape.JSON(what)
	if err != nil {
		return abi.Result{}, err
	}
	return abi.Result{Kind: abi.Success, Value: value}, nil
}
