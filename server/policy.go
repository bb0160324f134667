package server

import (
	"fmt"
	"path"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/internal/catalog"
)

// Decision is what a policy decides about a call.
type Decision string

// The decisions.
const (
	DecideAllow Decision = "allow" // the call is made
	DecideAsk   Decision = "ask"   // the call is made once a person has approved it
	DecideDeny  Decision = "deny"  // the call is refused
)

// ApprovalPolicy says which calls a person has to approve. The zero policy follows the
// manifests: Config.Approve is asked about tools with approval: required.
type ApprovalPolicy struct {
	// Ask holds calls as runs that start once somebody approves them with
	// [Service.Approvals], even after a restart. By default it asks about tools with
	// approval: required and about destructive ones, and not about readonly ones.
	Ask bool
	// Tools decides on tools by their names as agents see them, or by patterns such as
	// files_*, whatever their hints say. A name takes precedence over patterns, and a
	// longer pattern over a shorter one.
	Tools map[string]Decision
	// Wait is how long a call waits for approval before it is refused. 0 is
	// DefaultApprovalWait.
	Wait time.Duration
	// By says who decides. The zero value is ByUser.
	By ApprovalBy
}

// ApprovalBy says who decides on calls that wait for approval.
type ApprovalBy string

// Who decides. Operators always can, see [Approvals.Decide].
const (
	ByUser     ApprovalBy = "user"     // operators, and the client's user with [Request.Decide]
	ByOperator ApprovalBy = "operator" // operators only
)

// Bounds of approvals.
const (
	DefaultApprovalWait = 7 * 24 * time.Hour
	maxWaiting          = 100      // calls of a session that wait for approval
	maxShownArgs        = 16 << 10 // bytes of arguments shown to an operator
	maxAskedArgs        = 4000     // bytes of arguments in a question to a user
)

// heldForApproval is why a run is held.
const heldForApproval = "approval"

// check returns an error for an invalid pattern or decision.
func (p ApprovalPolicy) check() error {
	for name, d := range p.Tools {
		field := "Approvals.Tools." + name
		if _, err := path.Match(name, ""); err != nil || name == "" {
			return &background.FieldError{Field: field, Problem: "expected the name of a tool, or a pattern such as files_*"}
		}
		if d != DecideAllow && d != DecideAsk && d != DecideDeny {
			return &background.FieldError{Field: field, Problem: fmt.Sprintf("expected allow, ask or deny, found %q", d)}
		}
	}
	if p.By != "" && p.By != ByUser && p.By != ByOperator {
		return &background.FieldError{Field: "Approvals.By", Problem: fmt.Sprintf("expected user or operator, found %q", p.By)}
	}
	if p.Wait < 0 {
		return &background.FieldError{Field: "Approvals.Wait", Problem: "must not be negative"}
	}
	return nil
}

// decide returns the decision about calls of a tool.
func (p ApprovalPolicy) decide(tool *catalog.Tool) Decision {
	d, _ := p.rule(tool)
	return d
}

// rule is decide with its reason: a setting, or a property of the tool.
func (p ApprovalPolicy) rule(tool *catalog.Tool) (d Decision, why string) {
	if key, ok := catalog.MatchingKey(p.Tools, tool.Name); ok {
		return p.Tools[key], "approvals.tools." + key
	}

	hints := tool.Tool.Hints
	switch {
	case tool.Tool.Approval == abi.ApprovalRequired:
		return DecideAsk, "its manifest requires it"
	case p.Ask && !hints.Readonly && hints.IsDestructive():
		return DecideAsk, "it may delete or overwrite"
	}
	return DecideAllow, ""
}

// shown returns whether a person has to approve calls of a tool, as callers see it.
func (p ApprovalPolicy) shown(tool *catalog.Tool) abi.Approval {
	if p.decide(tool) == DecideAllow {
		return abi.ApprovalAuto
	}
	return abi.ApprovalRequired
}
