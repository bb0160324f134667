package server

import (
	"context"
	"errors"
	"sync"

	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// Reload reads the folders of plugins again, see [plugins.Registry.Reload]. Active calls
// and runs finish with the plugin they started with. The error is the cause of ctx, or
// host.ErrClosed.
func (s *Service) Reload(ctx context.Context) (plugins.Changes, error) {
	c, err := s.registry.Reload(ctx)
	if err == nil {
		s.reloaded(c)
	}
	return c, err
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
	if s.runs == nil {
		return // it is being opened
	}
	if err := s.runs.Reoffer(context.Background()); err != nil {
		s.log.Warn("other hosts do not know yet what this one has; trying again", "error", err)
	}
}

// watcher reloads whenever the folders of plugins change, while it is on.
type watcher struct {
	notify func(plugins.Changes)

	mu      sync.Mutex
	closed  bool
	off     context.CancelFunc // nil while it is off
	running sync.WaitGroup
}

// set switches it on or off.
func (w *watcher) set(r *plugins.Registry, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
	case on && w.off == nil:
		var ctx context.Context
		ctx, w.off = context.WithCancel(context.Background())
		w.running.Go(func() { r.Watch(ctx, w.notify) })
	case !on && w.off != nil:
		w.off()
		w.off = nil
	}
}

// close switches it off for good, and waits until it has ended.
func (w *watcher) close() {
	w.mu.Lock()
	w.closed = true
	if w.off != nil {
		w.off()
	}
	w.mu.Unlock()
	w.running.Wait()
}

// reloaded reports the changes of a reload.
func (s *Service) reloaded(c plugins.Changes) {
	if c.Empty() {
		return
	}

	s.reports.Lock()
	defer s.reports.Unlock()

	s.audit.Reload(c)
	s.audit.Grants(s.registry.Plugins())
	s.log.Info("plugins reloaded", "added", c.Added, "changed", c.Changed, "removed", c.Removed, "problems", len(c.Problems))

	if s.cfg.OnReload != nil {
		s.cfg.OnReload(c)
	} else {
		for _, p := range c.Problems {
			s.log.Warn("plugin not loaded", "file", p.File, "error", p.Err)
		}
	}

	s.reoffer()
	if c.Tools() {
		s.changed.send()
	}
}

// soon reports whether a call of a tool failed only because the plugin's file has just
// changed, and the watcher will soon reload it.
func soon(tool *catalog.Tool, err error) bool {
	return configOf(tool).Watch && errors.Is(err, plugins.ErrChanged) && !errors.Is(err, plugins.ErrReplaced)
}

func replacing(tool *catalog.Tool) error {
	return reason.Refuse("the plugin of %s is being replaced: try again in a few seconds", tool.Name)
}

// versionOf returns the version of a tool's plugin.
func versionOf(tool *catalog.Tool) (string, error) {
	digest, err := tool.Version()
	if soon(tool, err) {
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
