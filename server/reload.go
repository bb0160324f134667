package server

import (
	"context"
	"errors"

	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/wire"
)

// Reload reads the folders of plugins again, see [plugins.Registry.Reload]. Active calls
// and runs finish with the plugin they started with. The error is the cause of ctx, or
// host.ErrClosed.
func (s *Service) Reload(ctx context.Context) (plugins.Changes, error) {
	return s.reloads.Reload(ctx)
}

// ReloadPlugins is [Service.Reload] with an answer for operators, for programs that have
// no configuration to read again. In a dry run it changes nothing.
func (s *Service) ReloadPlugins(ctx context.Context) (wire.Reload, error) {
	out := wire.Reload{Changed: []wire.SettingChange{}, Restart: []wire.SettingChange{}, Problems: []wire.FileProblem{}, DryRun: InDryRun(ctx)}
	if out.DryRun {
		return out, nil
	}

	c, err := s.Reload(ctx)
	out.Added, out.Replaced, out.Removed = c.Added, c.Changed, c.Removed
	out.Problems = append(out.Problems, newProblems(c.Problems)...)
	return out, err
}

// reoffer publishes what this host has to the hosts that share its engine, and starts the
// runs that wait for it.
func (s *Service) reoffer() {
	if err := s.runs.Reoffer(context.Background()); err != nil {
		s.log.Warn("other hosts do not know yet what this one has; trying again", "error", err)
	}
}

// soon reports whether a call of a tool failed only because the plugin's file has just
// changed, and the watcher will soon reload it.
func soon(tool *catalog.Tool, err error) bool {
	return configOf(tool).Watch && errors.Is(err, plugins.ErrChanged) && !errors.Is(err, plugins.ErrReplaced)
}

// versionOf returns the version of a tool's plugin.
func versionOf(tool *catalog.Tool) (string, error) {
	digest, err := tool.Version()
	if soon(tool, err) {
		err = tool.Replacing()
	}
	return digest, err
}

// ToolsChanged returns a channel that receives a value when the answer of
// [Service.Definitions] may have changed. Changes before the channel is read count
// as one. It is closed when ctx is done or the service is closed.
func (s *Service) ToolsChanged(ctx context.Context) <-chan struct{} { return s.changed.Subscribe(ctx) }
