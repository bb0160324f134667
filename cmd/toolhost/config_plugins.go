package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/plugins"
)

// checkPlugins reports settings for plugins that do not exist. It loads the plugins, and
// makes no folder.
func (c *loaded) checkPlugins(ctx context.Context) error {
	folders := slices.ContainsFunc(c.problems, func(p problem) bool { return strings.HasPrefix(p.key, "plugins") })
	if len(c.plugins) == 0 || folders || len(c.server.Grants)+len(c.server.Interpret) == 0 {
		return nil
	}

	h, err := host.New(ctx, host.Config{Compiler: host.ThisProgram()})
	if err != nil {
		return err
	}
	defer h.Close(context.WithoutCancel(ctx))

	cfg := plugins.Config{Grants: c.server.Grants, Interpret: c.server.Interpret}
	for _, dir := range c.plugins {
		cfg.Folders = append(cfg.Folders, plugins.Dir(dir))
	}
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
	return nil
}
