package catalog

import (
	"cmp"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server/wire"
)

// Definitions returns these tools as models see them, without the ones that lack grants.
func (c *Catalog) Definitions(tools []*Tool) (all []wire.Definition) {
	for _, t := range tools {
		if t.Denied() == nil {
			all = append(all, c.Definition(t))
		}
	}
	return all
}

// Definition returns a tool as models see it.
func (c *Catalog) Definition(t *Tool) wire.Definition {
	input, output := t.ShownSchemas()
	return wire.Definition{
		Name: t.Name, Title: t.Tool.Title, Description: t.description(),
		InputSchema: input, OutputSchema: output,
		Plugin:             t.PluginName(),
		Unsandboxed:        t.Plugin == nil,
		Approval:           t.Settings.Approval(t),
		Deferrable:         cmp.Or(t.Tool.Deferrable, abi.DeferAutomatic),
		Deferred:           t.Deferred(),
		Annotations:        c.Annotations(t),
		SupportsBackground: t.Tool.Hints.SupportsBackground,
		ReadsMessages:      t.Tool.Hints.Messages,
		MayPark:            t.parks() || t.parksOverdue(),
		Limits:             t.shownLimits(),
	}
}

// description returns the description of the tool for models.
func (t *Tool) description() string { return t.Tool.Description + t.Settings.Rules().hint(t.Tool) }

// shownLimits returns the limits of the tool as callers see them.
func (t *Tool) shownLimits() wire.ToolLimits {
	out := t.Settings.Rules().shown(t.Tool, t.Plugin != nil)
	if t.Plugin != nil {
		for _, rule := range t.Plugin.Grant.HTTP {
			out.BodyBytes = max(out.BodyBytes, cmp.Or(rule.MaxBody, host.DefaultMaxBody))
		}
	}
	return out
}

// Annotations returns what a call to a tool may do.
func (c *Catalog) Annotations(t *Tool) wire.Annotations {
	hints := t.Tool.Hints
	writes, open := c.reach(t, map[string]bool{t.Name: true})
	return wire.Annotations{
		ReadOnly:    !writes,
		Destructive: writes && hints.IsDestructive(),
		Idempotent:  hints.Idempotent || hints.Readonly,
		OpenWorld:   open,
	}
}

// reach returns what a call to a tool can do outside of its sandbox, directly and through
// the tools that its plugin may call. seen holds the names already visited.
func (c *Catalog) reach(t *Tool, seen map[string]bool) (writes, open bool) {
	hints := t.Tool.Hints
	if t.Plugin == nil { // all that is known of a tool of the program is what it declares
		return !hints.Readonly, !closed(hints)
	}

	writes = t.Plugin.Grant.Writes()
	if slices.Contains(t.Plugin.Grant.Tools, abi.EveryTool) {
		writes, open = true, true
	}
	for _, name := range t.Plugin.Grant.Tools {
		if seen[name] {
			continue
		}
		seen[name] = true
		if other, err := c.Lookup(name); err == nil {
			w, o := c.reach(other, seen)
			writes, open = writes || w, open || o
		}
	}
	return writes && !hints.Readonly, t.Plugin.Grant.Public() || open && !closed(hints)
}

// callableBy returns the names of the tools that a plugin's tool may call.
func (c *Catalog) callableBy(t *Tool) []string {
	if !slices.Contains(t.Plugin.Grant.Tools, abi.EveryTool) {
		return t.Plugin.Grant.Tools
	}
	var names []string
	for _, tool := range c.Tools() {
		names = append(names, tool.Name)
	}
	return names
}

// Sends reports whether the tool's own requests may carry the secret with this name.
func (t *Tool) Sends(secret string) bool {
	return t.Plugin != nil && slices.ContainsFunc(t.Plugin.Grant.HTTP, func(r host.HTTPRule) bool { return r.Secret == secret })
}

// Sends reports whether requests of a tool may carry the secret with this name: its own
// requests, or those of tools that its plugin may call.
func (c *Catalog) Sends(t *Tool, secret string) bool {
	return c.sends(t, secret, map[string]bool{})
}

func (c *Catalog) sends(t *Tool, secret string, seen map[string]bool) bool {
	if t.Sends(secret) {
		return true
	}
	if t.Plugin == nil {
		return false
	}
	for _, name := range c.callableBy(t) {
		if seen[name] {
			continue
		}
		seen[name] = true
		if other, err := c.Lookup(name); err == nil && c.sends(other, secret, seen) {
			return true
		}
	}
	return false
}
