package server

import (
	"cmp"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server/wire"
)

// A Definition is a tool as a model sees it.
type Definition = wire.Definition

// Annotations describe what a call of a tool may do.
type Annotations = wire.Annotations

// Definitions returns the tools for a model: those of the plugins and of the program,
// sorted by name, then the agent's own, if some tool can be spawned or parked. If none
// can, check and stop stay while there are runs. [Service.ToolsChanged] signals when to
// call it again. Plugins that lack grants are left out, and so are deferred tools, see
// [Config].Listing and [Service.AllDefinitions].
func (s *Service) Definitions(session string) []Definition {
	return slices.DeleteFunc(s.AllDefinitions(session), func(d Definition) bool { return d.Deferred })
}

// UsualLimits returns the limits of a plugin's tool that asks for none. Definitions may
// have other Limits.
func (s *Service) UsualLimits() wire.ToolLimits {
	return s.now().rules.shown(&abi.Tool{Hints: abi.Hints{SupportsBackground: true}}, true)
}

func (s *toolset) define(t *callable) Definition {
	return Definition{
		Name: t.Name, Title: t.Tool.Title, Description: t.Tool.Description + t.rules.hint(t.Tool),
		InputSchema: t.Tool.InputSchema, OutputSchema: t.Tool.OutputSchema,
		Plugin:             t.source(),
		Unsandboxed:        t.plugin == nil,
		Approval:           t.cfg.Approvals.shown(t),
		Deferrable:         cmp.Or(t.Tool.Deferrable, abi.DeferAutomatic),
		Deferred:           s.deferred(t),
		Annotations:        s.annotate(t),
		SupportsBackground: t.Tool.Hints.SupportsBackground,
		ReadsMessages:      t.Tool.Hints.Messages,
		MayPark:            t.rules.parks(t) || t.rules.parksOverdue(t),
		Limits:             s.limitsOf(t),
	}
}

// limitsOf returns the limits of a tool as callers see them.
func (s *toolset) limitsOf(t *callable) wire.ToolLimits {
	out := t.rules.shown(t.Tool, t.plugin != nil)
	if t.plugin != nil {
		for _, rule := range t.plugin.Grant.HTTP {
			out.BodyBytes = max(out.BodyBytes, cmp.Or(rule.MaxBody, host.DefaultMaxBody))
		}
	}
	return out
}

// annotate returns what a call of a tool may do.
func (s *toolset) annotate(t *callable) Annotations {
	hints := t.Tool.Hints
	writes, open := s.reach(t, map[string]bool{t.Name: true})
	return Annotations{
		ReadOnly:    !writes,
		Destructive: writes && hints.IsDestructive(),
		Idempotent:  hints.Idempotent || hints.Readonly,
		OpenWorld:   open,
	}
}
