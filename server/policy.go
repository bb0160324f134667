package server

import (
	"fmt"
	"path"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
)

// Decision is what a policy says of a call.
type Decision string

// The decisions.
const (
	DecideAllow Decision = "allow" // it is made
	DecideAsk   Decision = "ask"   // once a person has approved it
	DecideDeny  Decision = "deny"  // it is refused
)

// ApprovalPolicy says which calls a person has to approve. The zero policy is that of
// manifests: Config.Approve is asked about tools with approval: required.
type ApprovalPolicy struct {
	// Ask lets calls wait for an approval: as runs that start once somebody approves them
	// with [Service.Approvals], also after a restart. By default it asks about tools with
	// approval: required and about destructive ones, and not about readonly ones.
	Ask bool
	// Tools decides on tools by their names as agents see them, or by patterns such as
	// files_*, whatever their hints say. A name wins over patterns, and a longer pattern
	// over a shorter one.
	Tools map[string]Decision
	// Wait is how long a call waits for approval; then it is refused. 0 is
	// DefaultApprovalWait.
	Wait time.Duration
	// By says who decides. The zero value is ByUser.
	By ApprovalBy
}

// ApprovalBy says who decides on calls that wait for approval.
type ApprovalBy string

// Who decides. Operators always can, see [Approvals.Decide].
const (
	ByUser     ApprovalBy = "user"     // the user of the client too, with [Request.Decide]
	ByOperator ApprovalBy = "operator" // operators alone
)

// Bounds of approvals.
const (
	DefaultApprovalWait = 7 * 24 * time.Hour
	maxWaiting          = 100      // calls of a session that wait for approval
	maxShownArgs        = 16 << 10 // bytes of arguments that an operator is shown
	maxAskedArgs        = 4000     // bytes of them in a question to a user
)

// heldForApproval is what a run waits for.
const heldForApproval = "approval"

// check returns an error if a pattern or a decision is wrong.
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

// decide says whether a tool is called.
func (p ApprovalPolicy) decide(tool *callable) Decision {
	d, _ := p.rule(tool)
	return d
}

// rule is decide, and why: a setting, or what is known of the tool.
func (p ApprovalPolicy) rule(tool *callable) (d Decision, why string) {
	if key, ok := matching(p.Tools, tool.Name); ok {
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

// shown is whether a person has to approve calls of a tool, as callers see it.
func (p ApprovalPolicy) shown(tool *callable) abi.Approval {
	if p.decide(tool) == DecideAllow {
		return abi.ApprovalAuto
	}
	return abi.ApprovalRequired
}
