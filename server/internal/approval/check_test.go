package approval

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// A policy decides by the names of tools, patterns, and then by what a tool declares.
func TestRules(t *testing.T) {
	tables := map[string]Decision{"dr*": Deny, "dro*": Allow, "drop": Ask, "d*": Deny}
	required, readonly := abi.Tool{Approval: abi.ApprovalRequired}, abi.Tool{Hints: abi.Hints{Readonly: true}}
	mild := abi.Tool{Hints: abi.Hints{Destructive: new(false)}}
	for _, test := range []struct {
		name   string
		policy Policy
		tool   abi.Tool
		called string
		want   Decision
		why    string
	}{
		{"a name before patterns", Policy{Tools: tables}, readonly, "drop", Ask, "approvals.tools.drop"},
		{"a longer pattern", Policy{Tools: tables}, required, "drown", Allow, "approvals.tools.dro*"},
		{"a shorter pattern", Policy{Tools: tables}, readonly, "dry", Deny, "approvals.tools.dr*"},
		{"a manifest", Policy{}, required, "other", Ask, "its manifest requires it"},
		{"destructive", Policy{Ask: true}, abi.Tool{}, "other", Ask, "it may delete or overwrite"},
		{"destructive, and nobody asks", Policy{}, abi.Tool{}, "other", Allow, ""},
		{"readonly", Policy{Ask: true}, readonly, "other", Allow, ""},
		{"not destructive", Policy{Ask: true}, mild, "other", Allow, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			tool := &catalog.Tool{Tool: &test.tool, Name: test.called}
			decision, why := test.policy.Rule(tool)
			require.Equal(t, []string{string(test.want), test.why}, []string{string(decision), why})
			require.Equal(t, test.want == Allow, test.policy.Shown(tool) == abi.ApprovalAuto)
		})
	}
}

func TestPolicyCheck(t *testing.T) {
	for _, test := range []struct {
		policy Policy
		want   string
	}{
		{Policy{}, ""},
		{Policy{Tools: map[string]Decision{"a*": Deny}, Wait: time.Hour, By: ByOperator}, ""},
		{Policy{Tools: map[string]Decision{"a": "maybe"}}, "expected allow, ask or deny"},
		{Policy{Tools: map[string]Decision{"[": Ask}}, "expected the name of a tool"},
		{Policy{Tools: map[string]Decision{"": Ask}}, "expected the name of a tool"},
		{Policy{By: "agent"}, "expected user or operator"},
		{Policy{Wait: -1}, "must not be negative"},
	} {
		if test.want == "" {
			require.NoError(t, test.policy.Check())
			continue
		}
		require.ErrorContains(t, test.policy.Check(), test.want)
	}
}

// What becomes of a call, what its caller reads, and what the audit log has.
func TestCheck(t *testing.T) {
	deny := Policy{Ask: true, Tools: map[string]Decision{"drop": Deny}}
	ask := Policy{Tools: map[string]Decision{"drop": Ask}}
	program := func(err error) func(context.Context, Call) error {
		return func(context.Context, Call) error { return err }
	}
	for name, test := range map[string]struct {
		rules   Rules
		keeps   bool
		want    Verdict
		err     string
		preview string
		audited string
	}{
		"free":                       {Rules{}, false, Free, "", "", ""},
		"denied":                     {Rules{Policy: deny}, false, Denied, "the operator's policy refuses drop (approvals.tools.drop)", "", `refused call of alice by "": "policy"`},
		"denied, in spite of a kept": {Rules{Policy: deny}, true, Denied, "the operator's policy refuses drop", "", `refused call of alice by "": "policy"`},
		"denied before the program":  {Rules{deny, program(nil)}, false, Denied, "the operator's policy refuses drop", "", `refused call of alice by "": "policy"`},
		"covered":                    {Rules{Policy: Policy{Ask: true}}, true, Covered, "", "", `approved call of alice by "": "kept"`},
		"approved by the program":    {Rules{ask, program(nil)}, false, Programmed, "", "A person would be asked", `approved call of alice by "": ""`},
		"refused by the program":     {Rules{ask, program(errors.New("not today"))}, false, Programmed, "the tool needs a person's approval: not today", "A person would be asked", `refused call of alice by "": ""`},
		"nobody to ask":              {Rules{Policy: ask}, false, Unheld, "nobody can be asked here", "", ""},
		"held":                       {Rules{Policy: Policy{Ask: true}}, false, Held, "the tool needs a person's approval", "it may delete or overwrite", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			call := Call{Session: alice, Args: json.RawMessage(`{"n":1}`)}
			if test.keeps {
				require.NoError(t, b.decideOn(b.hold(alice, `{"n":1}`, ""), wire.Decide{Approve: true, Keep: wire.KeepAlways}))
			}
			b.rules, b.audited = test.rules, nil

			verdict, text, err := b.Preview(t.Context(), b.tool, call)
			require.Equal(t, test.want, verdict)
			require.Contains(t, text, test.preview)
			require.Equal(t, verdict == Denied || verdict == Unheld, err != nil)
			require.Empty(t, b.audited, "a dry run asks nobody")

			err = b.Check(t.Context(), b.tool, call)
			if test.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, reason.ErrApproval)
				require.ErrorContains(t, err, test.err)
			}
			require.Equal(t, test.want == Held, errors.Is(err, ErrHold))
			if test.audited != "" {
				require.Equal(t, []string{test.audited}, b.audited)
			} else {
				require.Empty(t, b.audited)
			}
		})
	}
}

// What a program approves counts for the code and the grants that it was asked about.
func TestProgramAndChanges(t *testing.T) {
	for name, change := range map[string]*catalog.Tool{"code": drop("v2", clock), "grants": drop("v1", plugins.Grant{}), "the tool is gone": nil} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			b.rules.Program = func(context.Context, Call) error { b.tool = change; return nil }
			require.ErrorIs(t, b.Check(t.Context(), b.tool, Call{Session: alice}), ErrChanged)
		})
	}
}

// A run starts with what was approved, or with what needs no approval.
func TestStart(t *testing.T) {
	same, err := Bind(drop("v1", clock))
	require.NoError(t, err)
	for name, test := range map[string]struct {
		tool     *catalog.Tool
		bound    Binding
		schedule string
		policy   Policy
		want     string
	}{
		"approved":                       {drop("v1", clock), same, "", Policy{Ask: true}, ""},
		"approved, of a schedule":        {drop("v1", clock), same, "sc", Policy{Ask: true}, ""},
		"other code":                     {drop("v2", clock), same, "", Policy{Ask: true}, "has changed since somebody was asked"},
		"other grants":                   {drop("v1", plugins.Grant{Clock: true, Random: true}), same, "", Policy{Ask: true}, "has changed since somebody was asked"},
		"code that is not known":         {drop("", clock), same, "", Policy{Ask: true}, "has changed since somebody was asked"},
		"denied by now":                  {drop("v1", clock), same, "", Policy{Tools: map[string]Decision{"*": Deny}}, "the operator's policy refuses"},
		"never held, when requested":     {drop("v1", clock), Binding{}, "", Policy{Ask: true}, ""},
		"never held, a firing":           {drop("v1", clock), Binding{}, "sc", Policy{Ask: true}, "the tool needs a person's approval"},
		"never held, a firing of a mild": {drop("v1", clock), Binding{}, "sc", Policy{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			b.rules.Policy = test.policy
			terms, err := json.Marshal(test.bound)
			require.NoError(t, err)
			err = b.Start(t.Context(), test.tool, engine.Run{Session: alice, Tool: "drop", Terms: terms, Schedule: test.schedule})
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}

	b := open(t)
	broken := engine.Run{ID: "bg_a", Terms: json.RawMessage(`[`)}
	require.ErrorContains(t, b.Start(t.Context(), b.tool, broken), "reading the terms of bg_a")
}
