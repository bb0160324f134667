package server

import (
	"context"
	"errors"
	"sync"

	"github.com/toolhost/toolhost/plugins"
)

// Reload reads the folders of plugins again, see [plugins.Registry.Reload]. Active
// calls and runs end in the plugin they started in. The error is the cause of ctx,
// or host.ErrClosed.
func (s *Service) Reload(ctx context.Context) (plugins.Changes, error) {
	c, err := s.registry.Reload(ctx)
	if err == nil {
		s.reloaded(c)
	}
	return c, err
}

// Regrant replaces Config.Grants, and reloads, see [plugins.Registry.Regrant]. Secrets of
// users are encrypted with the first key, if they are not yet.
func (s *Service) Regrant(ctx context.Context, grants map[string]plugins.Grant) (plugins.Changes, error) {
	c, err := s.registry.Regrant(ctx, grants)
	if err != nil {
		return c, err
	}
	s.reloaded(c)
	return c, renewSecrets(ctx, s)
}

// watch reloads whenever the folders change, until the service is closed.
func (s *Service) watch(ctx context.Context) {
	s.watching.Go(func() { s.registry.Watch(ctx, s.reloaded) })
}

// reloaded reports the changes of a reload.
func (s *Service) reloaded(c plugins.Changes) {
	if c.Empty() {
		return
	}

	s.reports.Lock()
	defer s.reports.Unlock()

	s.audit.reload(c)
	s.audit.grants(s.registry.Plugins())
	s.log.Info("plugins reloaded", "added", c.Added, "changed", c.Changed, "removed", c.Removed, "problems", len(c.Problems))

	if s.cfg.OnReload != nil {
		s.cfg.OnReload(c)
	} else {
		for _, p := range c.Problems {
			s.log.Warn("plugin not loaded", "file", p.File, "error", p.Err)
		}
	}

	if c.Tools() {
		s.changed.send()
	}
}

// soon reports whether a call failed only because the plugin's file has just
// changed, and the watcher will soon reload it.
func (s *toolset) soon(err error) bool {
	return s.watched && errors.Is(err, plugins.ErrChanged) && !errors.Is(err, plugins.ErrReplaced)
}

func replacing(tool *callable) error {
	return refuse("the plugin of %s is being replaced: try again in a few seconds", tool.Name)
}

// version returns the version of a tool's plugin.
func (s *toolset) version(tool *callable) (string, error) {
	digest, err := tool.Version()
	if s.soon(err) {
		err = replacing(tool)
	}
	return digest, err
}

// ToolsChanged returns a channel that receives a value when the answer of
// [Service.Definitions] may have changed. Changes before the channel is read count
// as one. It is closed when ctx is done or the service is closed.
func (s *Service) ToolsChanged(ctx context.Context) <-chan struct{} {
	c := make(chan struct{}, 1)
	next := s.changed.next()
	go func() {
		defer close(c)
		for !s.closed.Load() {
			select {
			case <-next:
			case <-ctx.Done():
				return
			}
			if next = s.changed.next(); s.closed.Load() {
				return
			}
			select {
			case c <- struct{}{}:
			default: // a signal is pending
			}
		}
	}()
	return c
}

// signal wakes all who wait for something to happen again.
type signal struct {
	mu sync.Mutex
	c  chan struct{} // nil: nobody waits
}

// next returns a channel that is closed by the next send.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

func (s *signal) send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}
