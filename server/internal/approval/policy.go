package approval

import (
	"cmp"
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
	Allow Decision = "allow" // the call is made
	Ask   Decision = "ask"   // the call is made once a person has approved it
	Deny  Decision = "deny"  // the call is refused
)

// By says who decides on held calls.
type By string

// Who decides on held calls. Operators always can.
const (
	ByUser     By = "user"     // operators, and the user of the session
	ByOperator By = "operator" // operators only
)

// DefaultWait is how long a call is held by default.
const DefaultWait = 7 * 24 * time.Hour

// A Policy says which calls a person has to approve, and who may decide on them.
type Policy struct {
	Ask   bool                // whether calls that need approval are held; also makes destructive tools need approval
	Tools map[string]Decision // decisions, by names of tools or patterns
	Wait  time.Duration       // time that a call is held; 0 means DefaultWait
	By    By                  // who decides; empty means ByUser
}

// Check returns a *background.FieldError for an invalid field.
func (p Policy) Check() error {
	for name, d := range p.Tools {
		field := "Approvals.Tools." + name
		if _, err := path.Match(name, ""); err != nil || name == "" {
			return &background.FieldError{Field: field, Problem: "expected the name of a tool, or a pattern such as files_*"}
		}
		if d != Allow && d != Ask && d != Deny {
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

// Rule returns the decision about calls to a tool, and its reason: a setting, or a property
// of the tool.
func (p Policy) Rule(tool *catalog.Tool) (d Decision, why string) {
	if key, ok := catalog.MatchingKey(p.Tools, tool.Name); ok {
		return p.Tools[key], "approvals.tools." + key
	}

	hints := tool.Tool.Hints
	switch {
	case tool.Tool.Approval == abi.ApprovalRequired:
		return Ask, "its manifest requires it"
	case p.Ask && !hints.Readonly && hints.IsDestructive():
		return Ask, "it may delete or overwrite"
	}
	return Allow, ""
}

// Shown returns whether a person has to approve calls to a tool, as it is shown to callers.
func (p Policy) Shown(tool *catalog.Tool) abi.Approval {
	if d, _ := p.Rule(tool); d == Allow {
		return abi.ApprovalAuto
	}
	return abi.ApprovalRequired
}

// byUser reports whether the user of a session may decide on its calls.
func (p Policy) byUser() bool { return p.By != ByOperator }

// wait returns how long a call is held.
func (p Policy) wait() time.Duration { return cmp.Or(p.Wait, DefaultWait) }
