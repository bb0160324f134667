package server

import (
	"cmp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/wire"
)

// A Definition is a tool as a model sees it.
type Definition = wire.Definition

// Annotations say what a call of a tool may do.
type Annotations = wire.Annotations

// Definitions returns all tools a session may call: those of the plugins,
// sorted by name, then the agent's own three, if there is a tool to spawn or
// that may be parked; without it, where there were runs, those to check and to
// stop them. [Service.ToolsChanged] tells when to ask again.
// A plugin that was not granted all it needs is left out: a model is not told
// of tools that would refuse it.
func (s *Service) Definitions(session string) []Definition {
	var ds []Definition
	tools := s.registry.Tools()
	for _, t := range tools {
		if len(t.Plugin.Missing) == 0 {
			ds = append(ds, s.define(t))
		}
	}
	for _, a := range s.offered(tools) {
		ds = append(ds, a.definition)
	}
	return ds
}

func (s *Service) define(t *plugins.Tool) Definition {
	return Definition{
		Name: t.Name, Title: t.Tool.Title, Description: t.Tool.Description,
		InputSchema: t.Tool.InputSchema, OutputSchema: t.Tool.OutputSchema,
		Plugin:             t.Plugin.Manifest.Name,
		Approval:           cmp.Or(t.Tool.Approval, abi.ApprovalAuto),
		Deferrable:         cmp.Or(t.Tool.Deferrable, abi.DeferAutomatic),
		Annotations:        Annotate(t),
		SupportsBackground: t.Tool.Hints.SupportsBackground,
		MayPark:            s.rules.parks(t),
	}
}

// Annotate returns what a call of a plugin's tool may do.
func Annotate(t *plugins.Tool) Annotations {
	hints := t.Tool.Hints
	writes := t.Plugin.Grant.Writes() && !hints.Readonly
	return Annotations{
		ReadOnly:    !writes,
		Destructive: writes && hints.IsDestructive(),
		Idempotent:  hints.Idempotent || hints.Readonly,
		OpenWorld:   false, // this host grants no plugin a way out
	}
}
