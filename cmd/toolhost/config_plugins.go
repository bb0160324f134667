package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

// checkPlugins reports what toolhost list would report: plugins that cannot be loaded, and
// settings for plugins and tools that do not exist. It also reports grants that are too
// little for each tool of their plugin. It creates no folder.
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

	for _, p := range r.Problems() {
		key, name, isSetting := strings.Cut(p.File, ": ") // interpret: NAME
		switch {
		case isSetting:
			c.problem(key, "%s: %v", name, p.Err)
		case slices.Contains(r.Unknown(), p):
			c.problem(key, "%v", p.Err)
		default:
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
	c.checkTools(r)
	return nil
}

// pluginsConfig returns the configuration of a registry that writes nothing.
func (c configCheck) pluginsConfig() plugins.Config {
	var s server.Config
	c.apply(&s)
	cfg := plugins.Config{Folders: s.Folders, Grants: s.Grants, Interpret: s.Interpret, Verifier: s.Verifier, Lock: c.lock()}
	cfg.Lock.Kept = ""
	if cache, err := filepath.EvalSymlinks(filepath.Join(c.data, "cache")); err == nil && c.data != "" {
		cfg.CacheDir = cache
	}
	return cfg
}

// checkTools reports unknown names of tools.
func (c configCheck) checkTools(r *plugins.Registry) {
	check := func(key, name string) {
		if name == abi.EveryTool {
			return
		}
		if _, err := r.Lookup(name); errors.Is(err, plugins.ErrNoTool) && !c.problems.has(key) {
			c.problem(key, "%v", err)
		}
	}

	for name := range c.server.Approvals.Tools {
		if !strings.Contains(name, "*") {
			check("approvals.tools."+name, name)
		}
	}
	for name := range c.server.Listing {
		if !strings.Contains(name, "*") && !server.IsAgentTool(name) {
			check("listing."+name, name)
		}
	}
	for plugin, g := range c.server.Grants {
		for i, name := range g.Tools {
			check(fmt.Sprintf("grants.%s.tools.%d", plugin, i), name)
		}
	}
}
