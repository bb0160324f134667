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

// checkPlugins reports settings for plugins and tools that do not exist. It loads the plugins, and
// creates no folder.
func (c configCheck) checkPlugins(ctx context.Context) error {
	folders := slices.ContainsFunc(c.problems, func(p problem) bool { return strings.HasPrefix(p.key, "plugins") })
	if len(c.plugins) == 0 && !c.exec && c.starter == nil || folders || len(c.server.Grants)+len(c.server.Interpret)+len(c.server.Approvals.Tools)+len(c.server.Listing) == 0 {
		return nil
	}

	h, err := host.New(ctx, host.Config{Compiler: host.ThisProgram()})
	if err != nil {
		return err
	}
	defer h.Close(context.WithoutCancel(ctx))

	cfg := plugins.Config{Grants: c.server.Grants, Interpret: c.server.Interpret}
	cfg.Folders = c.folders()
	if cache, err := filepath.EvalSymlinks(filepath.Join(c.data, "cache")); err == nil && c.data != "" {
		cfg.CacheDir = cache
	}
	r, err := plugins.Open(ctx, h, cfg)
	if err != nil {
		return err
	}
	defer r.Close(context.WithoutCancel(ctx))

	unknown, hint := r.Unknown(), ""
	isUnknown := func(file string) bool {
		return slices.ContainsFunc(unknown, func(p plugins.Problem) bool { return p.File == file })
	}
	if slices.ContainsFunc(r.Problems(), func(p plugins.Problem) bool { return filepath.Ext(p.File) == ".wasm" && !isUnknown(p.File) }) {
		hint = "; toolhost list shows files that could not be loaded"
	}
	for _, p := range unknown {
		key, _, _ := strings.Cut(p.File, ": ")
		c.problem(key, "%s%s", strings.TrimPrefix(p.String(), key+": "), hint)
	}
	c.checkTools(r, hint)
	return nil
}

// checkTools reports unknown names of tools.
func (c configCheck) checkTools(r *plugins.Registry, hint string) {
	check := func(key, name string) {
		if name == abi.EveryTool {
			return
		}
		if _, err := r.Lookup(name); errors.Is(err, plugins.ErrNoTool) && !c.problems.has(key) {
			c.problem(key, "%v%s", err, hint)
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
