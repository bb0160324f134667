package server

import (
	"context"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// Catalog returns the loaded plugins, and everything that needs an operator's attention:
// the problems of [Service.Findings], and files that cannot be read now. It may have to
// read the files of plugins.
func (s *Service) Catalog(ctx context.Context) ([]wire.Plugin, []wire.FileProblem, error) {
	unread, err := s.registry.ReadDigests(ctx)
	if err != nil {
		return nil, nil, err
	}

	loaded := s.registry.Plugins()
	all := make([]wire.Plugin, len(loaded))
	for i, p := range loaded {
		all[i] = s.newPlugin(p, s.now())
	}
	return all, append(s.Findings(), newProblems(unread)...), nil
}

func (s *toolset) newPlugin(p *plugins.Plugin, now *settings) wire.Plugin {
	digest, _ := p.Digest() // else it is among the problems
	out := wire.Plugin{
		Name: p.Manifest.Name, Version: p.Manifest.Version, Description: p.Manifest.Description, File: p.File,
		Digest: digest, Locked: p.Locked(), Signer: p.Signer.String(),
		Needs: plugins.Grant{}.Missing(p.Manifest.Needs), Grants: p.Grant.Names(), Missing: p.Missing,
	}
	if len(p.Grant.Config) > 0 {
		out.Grants = append(out.Grants, "config")
	}

	for _, m := range p.Grant.Files {
		out.Folders = append(out.Folders, wire.Folder{Dir: m.Dir, Path: m.Path, Write: m.Write})
	}
	for _, t := range p.Tools {
		out.Tools = append(out.Tools, s.newPluginTool(ofPlugin(t, now)))
	}

	return out
}

func (s *toolset) newPluginTool(t *callable) wire.PluginTool {
	return wire.PluginTool{
		Name: t.Name, Title: t.Tool.Title, Description: t.Tool.Description,
		Approval: t.Tool.Approval, Deferred: s.deferred(t), Hints: t.Tool.Hints, Annotations: s.annotate(t),
	}
}

// Findings returns what needs an operator's attention: plugins that were not loaded, that lack
// grants (except those of packs), or that were granted tools that cannot be called; damage to
// Config.DataDir; and plugins that have differed between hosts for more than ten minutes.
func (s *Service) Findings() []wire.FileProblem {
	found := slices.Concat(newProblems(s.registry.Problems()), s.storage.Problems(), s.cluster.Problems())
	for _, p := range s.registry.Plugins() {
		if len(p.Missing) > 0 && !p.Pack {
			found = append(found, wire.FileProblem{File: p.File, Error: (&plugins.GrantError{Plugin: p}).Error()})
		}
		for _, name := range p.Grant.Tools {
			if _, err := s.lookup(name); err != nil && name != abi.EveryTool {
				found = append(found, wire.FileProblem{File: p.File, Error: "granted a tool that cannot be called: " + reason.TextOf(err)})
			}
		}
	}
	return found
}

// Overridden returns the plugins of packs that others replace, see
// [plugins.Registry.Overridden].
func (s *Service) Overridden() []wire.FileProblem { return newProblems(s.registry.Overridden()) }

func newProblems(all []plugins.Problem) []wire.FileProblem {
	var out []wire.FileProblem
	for _, p := range all {
		out = append(out, wire.FileProblem{File: p.File, Error: p.Err.Error()})
	}
	return out
}
