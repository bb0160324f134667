package catalog

import (
	"cmp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/wire"
)

// Plugins returns the loaded plugins and their tools, as operators see them.
func (c *Catalog) Plugins() []wire.Plugin {
	loaded, settings := c.registry.Plugins(), c.settings()
	all := make([]wire.Plugin, len(loaded))
	for i, p := range loaded {
		all[i] = c.plugin(p, settings)
	}
	return all
}

func (c *Catalog) plugin(p *plugins.Plugin, settings Settings) wire.Plugin {
	digest, _ := p.Digest() // else it is among the problems
	out := wire.Plugin{
		Name: p.Manifest.Name, Version: p.Manifest.Version, Description: p.Manifest.Description, File: p.File,
		Digest: digest, Locked: p.Locked(), Signer: p.Signer.String(),
		Needs: plugins.Needs(p.Manifest), Grants: p.Grant.Names(), Missing: p.Missing,
	}
	if len(p.Grant.Config) > 0 {
		out.Grants = append(out.Grants, "config")
	}

	for _, m := range p.Grant.Files {
		out.Folders = append(out.Folders, wire.Folder{Dir: m.Dir, Path: m.Path, Mode: cmp.Or(m.Mode, abi.FileRead)})
	}
	for _, t := range p.Tools {
		tool := c.pluginTool(OfPlugin(t, settings))
		tool.Missing = t.Missing
		out.Tools = append(out.Tools, tool)
	}

	return out
}

// ProgramTools returns the program's own tools, sorted by name, as operators see them.
func (c *Catalog) ProgramTools() (all []wire.PluginTool) {
	for _, t := range c.program.all() {
		all = append(all, c.pluginTool(ofProgram(t, c.settings())))
	}
	return all
}

func (c *Catalog) pluginTool(t *Tool) wire.PluginTool {
	return wire.PluginTool{
		Name: t.Name, Title: t.Tool.Title, Description: t.Tool.Description,
		Approval: t.Tool.Approval, Deferred: t.Deferred(), Hints: t.Tool.Hints, Annotations: c.Annotations(t),
	}
}
