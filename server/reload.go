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
func (s *Service) soon(err error) bool {
	return s.cfg.Watch && errors.Is(err, plugins.ErrChanged) && !errors.Is(err, plugins.ErrReplaced)
}

func replacing(tool *plugins.Tool) error {
	return refuse("the plugin of %s is being replaced: try again in a few seconds", tool.Name)
}

// version returns the version of a tool's plugin.
func (s *Service) version(tool *plugins.Tool) (string, error) {
	digest, err := tool.Plugin.Digest()
	if s.soon(err) {
		err = replacing(tool)
	}
	return digest, err
}

// ToolsChanged returns a channel that receives a value when the answer of
// [Service.Definitions] may have changed. Changes before the channel is read count
// as one. It is closed when ctx is done or the service is closed.
func (s *Service) ToolsChanged(ctx context.Context) <-chan struct{} { return s.changed.watch(ctx) }

// signals are channels that receive a value when something has changed. The zero
// value has none.
type signals struct {
	mu     sync.Mutex
	closed bool
	open   map[chan struct{}]bool
}

func (s *signals) watch(ctx context.Context) <-chan struct{} {
	c := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.closed {
		close(c)
		return c
	}

	if s.open == nil {
		s.open = map[chan struct{}]bool{}
	}

	s.open[c] = true
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.end(c)
	})
	return c
}

// send signals all channels without waiting.
func (s *signals) send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		select {
		case c <- struct{}{}:
		default: // a signal is pending
		}
	}
}

func (s *signals) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.open {
		s.end(c)
	}
}

// end closes a channel once. The caller holds s.mu.
func (s *signals) end(c chan struct{}) {
	if s.open[c] {
		delete(s.open, c)
		close(c)
	}
}
