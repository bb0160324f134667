// Package approval decides which calls a person has to approve, and holds those calls until
// the decision. It also words the questions for that person, binds decisions to code and
// grants, and keeps decisions for later calls.
package approval

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/wire"
)

// A Call is a call that may need approval.
type Call struct {
	Session, Tool string
	Args          json.RawMessage // arguments, including secrets
	Caller        string          // tool that makes the call; empty for an agent's call
	Schedule      *wire.Schedule  // schedule that is being made; nil for any other call
}

// Rules are the rules for calls to a tool.
type Rules struct {
	Policy  Policy
	Program func(ctx context.Context, c Call) error // decides on the calls that Policy asks about; nil leaves them to people
}

// An Audit records decisions.
type Audit interface {
	Decided(kind audit.Kind, of record.Held, by, how string)
	Admin(action, session, id string)
}

// A Checker decides which calls need approval, and keeps approvals for later calls. It is
// safe for concurrent use. All fields are required.
type Checker struct {
	Engine  engine.Engine // stores kept approvals
	Process string        // id of this process among the hosts
	Lookup  func(tool string) (*catalog.Tool, error)
	Rules   func(tool *catalog.Tool) Rules // rules in force when the tool was found
	Audit   Audit
}

// A Verdict says whether a call is made, held or refused.
type Verdict int

// The verdicts.
const (
	Free       Verdict = iota // the call needs no approval
	Covered                   // a kept approval covers the call
	Denied                    // the policy refuses the call
	Programmed                // the program decides on the call
	Unheld                    // the call needs approval, and nobody can give it
	Held                      // the call is held until a person decides
)

// Errors of calls that need approval.
var (
	// ErrHold means that a call is to be held until a person decides.
	ErrHold = fmt.Errorf("%w", reason.ErrApproval)
	// ErrNobody means that a call can neither be approved nor held.
	ErrNobody = fmt.Errorf("%w, and nobody can be asked here", reason.ErrApproval)
)

// Judge returns the verdict on a call, and the rule that requires approval or refuses the
// call. It asks nobody, and records nothing.
func (c *Checker) Judge(ctx context.Context, tool *catalog.Tool, call Call) (Verdict, string) {
	rules := c.Rules(tool)
	decision, why := rules.Policy.Rule(tool)
	switch {
	case decision == Allow:
		return Free, ""
	case decision == Deny:
		return Denied, why
	case c.covers(ctx, tool, call):
		return Covered, why
	case rules.Program != nil:
		return Programmed, why
	case !rules.Policy.Ask:
		return Unheld, why
	}
	return Held, why
}

// Check returns nil if a call may be made: it needs no approval, a kept approval covers it, or
// the program approves it. Otherwise the error matches [reason.ErrApproval], or is ErrHold. It
// is the last check of a call, so that nobody is asked about a call that would be refused
// anyway.
func (c *Checker) Check(ctx context.Context, tool *catalog.Tool, call Call) error {
	call.Tool = tool.Name
	switch verdict, why := c.Judge(ctx, tool, call); verdict {
	case Denied:
		c.Audit.Decided(audit.Refused, call.record(), "", "policy")
		return denied(tool, why)
	case Covered:
		c.Audit.Decided(audit.Approved, call.record(), "", "kept")
	case Programmed:
		return c.askProgram(ctx, tool, call)
	case Unheld:
		return ErrNobody
	case Held:
		return ErrHold
	}
	return nil
}

// record describes a call for the audit log.
func (c Call) record() record.Held { return record.Held{Session: c.Session, Tool: c.Tool} }

func denied(tool *catalog.Tool, why string) error {
	return fmt.Errorf("%w: the operator's policy refuses %s (%s)", reason.ErrApproval, tool.Name, why)
}

// askProgram lets the program decide, which may take time. The decision is valid for the
// code and the grants in force when it was asked.
func (c *Checker) askProgram(ctx context.Context, tool *catalog.Tool, call Call) error {
	before := fingerprint(tool)
	err := c.Rules(tool).Program(ctx, call)
	if now, gone := c.Lookup(tool.Name); err == nil && (gone != nil || before == "" || fingerprint(now) != before) {
		err = ErrChanged
	}
	if err != nil {
		c.Audit.Decided(audit.Refused, call.record(), "", "")
		return fmt.Errorf("%w: %w", reason.ErrApproval, err)
	}
	c.Audit.Decided(audit.Approved, call.record(), "", "")
	return nil
}

// Preview is like Check, but for a dry run: it asks nobody. The text that it returns tells the
// caller that a person would be asked.
func (c *Checker) Preview(ctx context.Context, tool *catalog.Tool, call Call) (Verdict, string, error) {
	verdict, why := c.Judge(ctx, tool, call)
	switch verdict {
	case Denied:
		return verdict, "", denied(tool, why)
	case Unheld:
		return verdict, "", fmt.Errorf("%w (%s), and nobody can be asked here", reason.ErrApproval, why)
	case Programmed, Held:
		return verdict, "A person would be asked to approve it first: " + why + ".", nil
	}
	return verdict, "", nil
}

// Start returns an error unless a run that is about to start was approved. A held run was
// approved for the code and the grants that were asked about; a firing of a schedule is
// approved now; any other run was approved when it was requested. A run that the policy now
// denies does not start.
func (c *Checker) Start(ctx context.Context, tool *catalog.Tool, run engine.Run) error {
	bound, err := BindingOf(run)
	switch {
	case err != nil:
		return err
	case bound.Fingerprint != "":
		if decision, why := c.Rules(tool).Policy.Rule(tool); decision == Deny {
			return denied(tool, why)
		}
		return Same(tool, run)
	case run.Schedule == "":
		return nil
	}
	return c.Check(ctx, tool, Call{Session: run.Session, Args: run.Args})
}
