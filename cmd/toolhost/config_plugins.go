package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	slashpath "path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

// checkPlugins reports what toolhost list would report: plugins that cannot be loaded, and
// settings for plugins and tools that do not exist. It also reports plugins whose grants
// are not enough for any of their tools. It creates no folders.
func (c configCheck) checkPlugins(ctx context.Context) error {
	unread := slices.ContainsFunc(c.problems, func(p problem) bool { return strings.HasPrefix(p.key, "plugins") })
	if unread || len(c.folders()) == 0 {
		return nil
	}

	h, err := host.New(ctx, host.Config{Compiler: host.ThisProgram()})
	if err != nil {
		return err
	}
	defer h.Close(context.WithoutCancel(ctx))

	r, err := plugins.Open(ctx, h, c.pluginsConfig())
	if err != nil {
		return err
	}
	defer r.Close(context.WithoutCancel(ctx))

	broken := false // the tools of a plugin that cannot be loaded are not known
	for _, p := range r.Problems() {
		key, name, isSetting := strings.Cut(p.File, ": ") // interpret: NAME
		switch {
		case isSetting:
			c.problem(key, "%s: %v", name, p.Err)
		case slices.Contains(r.Unknown(), p):
			c.problem(key, "%v", p.Err)
		default:
			broken = true
			c.problems = append(c.problems, problem{key: p.File, text: p.Err.Error()})
		}
	}
	for _, p := range r.Plugins() {
		key := "grants." + p.Manifest.Name
		inside := func(other problem) bool { return strings.HasPrefix(other.key, key+".") } // which may be why it is less
		if _, granted := c.server.Grants[p.Manifest.Name]; granted && p.Denied() != nil && !slices.ContainsFunc(c.problems, inside) {
			c.problem(key, "%v", &plugins.GrantError{Plugin: p})
		}
	}
	if !broken {
		c.checkTools(r)
	}
	return nil
}

// pluginsConfig returns the configuration for a registry of plugins that writes nothing.
func (c configCheck) pluginsConfig() plugins.Config {
	var s server.Config
	c.apply(&s)
	cfg := plugins.Config{Folders: s.Folders, Grants: s.Grants, Interpret: s.Interpret, Verifier: s.Verifier, Lock: c.lock()}
	cfg.Lock.Kept = ""
	if cache, err := filepath.EvalSymlinks(filepath.Join(c.data, "cache")); err == nil && c.data != "" && !owned.Foreign(c.data) {
		cfg.CacheDir = cache
	}
	return cfg
}

// checkTools reports unknown tool names, and patterns that match no tools.
func (c configCheck) checkTools(r *plugins.Registry) {
	for _, p := range c.unusedRules(r.Tools()) {
		c.problem(p.key, "%s", p.text)
	}
	for plugin, g := range c.server.Grants {
		for i, name := range g.Tools {
			key := fmt.Sprintf("grants.%s.tools.%d", plugin, i)
			if _, err := r.Lookup(name); errors.Is(err, plugins.ErrNoTool) && name != abi.EveryTool {
				c.problem(key, "%v", err)
			}
		}
	}
}

// unusedRules returns those names and patterns in approvals.tools and listing that match
// no tool. They are usually misspelled.
func (c *loadedConfig) unusedRules(tools []*plugins.Tool) (found problems) {
	var names []string
	for _, t := range tools {
		names = append(names, t.Name)
	}

	for rule := range c.server.Approvals.Tools {
		found.addUnused("approvals.tools", rule, names)
	}
	names = append(names, server.AgentTools()...)
	for rule := range c.server.Listing {
		found.addUnused("listing", rule, names)
	}
	for i, p := range found {
		found[i].source = c.source(p.key)
	}
	slices.SortFunc(found, func(a, b problem) int { return cmp.Compare(a.key, b.key) })
	return found
}

// addUnused adds a problem if a rule in a setting matches none of the names.
func (p *problems) addUnused(setting, rule string, names []string) {
	if slices.ContainsFunc(names, func(name string) bool { ok, _ := slashpath.Match(rule, name); return ok }) {
		return
	}

	text, known := fmt.Sprintf("%v: %q", plugins.ErrNoTool, rule), names
	if strings.Contains(rule, "*") {
		text, known = "no tool matches this pattern", nil
		for _, name := range names {
			if plugin, _, ok := strings.Cut(name, "_"); ok {
				known = append(known, plugin+"_*")
			}
		}
	}
	if near := abi.Nearest(rule, known); near != "" {
		text += fmt.Sprintf(", did you mean %q?", near)
	}
	*p = append(*p, problem{key: setting + "." + rule, text: text})
}
