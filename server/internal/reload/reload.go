// Package reload reloads plugins, on request or when their folders change, and reports what
// has changed.
package reload

import (
	"context"
	"log/slog"
	"sync"

	"github.com/toolhost/toolhost/plugins"
)

// Config says what is reloaded, and to whom changes are reported.
type Config struct {
	Registry Registry
	Audit    Auditor
	OnReload func(c plugins.Changes) // called with the changes of a reload; nil means that problems are logged instead
	Offer    func()                  // offers the plugins to the hosts that share the engine
	Tools    *Signal                 // signal that is sent when tools have changed
	Logger   *slog.Logger
}

// Registry holds the plugins: see [plugins.Registry].
type Registry interface {
	Plugins() []*plugins.Plugin
	Reload(ctx context.Context) (plugins.Changes, error)
	Watch(ctx context.Context, notify func(c plugins.Changes))
}

// Auditor records changes and grants in the audit log.
type Auditor interface {
	Reload(c plugins.Changes)
	Grants(all []*plugins.Plugin)
}

// A Reloader reloads plugins. It is safe for concurrent use.
type Reloader struct {
	cfg     Config
	reports sync.Mutex // serializes reports

	mu       sync.Mutex
	closed   bool
	unwatch  context.CancelFunc // nil while the folders are not watched
	watching sync.WaitGroup
}

// New returns a Reloader that does not watch the folders yet.
func New(cfg Config) *Reloader { return &Reloader{cfg: cfg} }

// Reload reads the folders of plugins again, and reports the changes.
func (r *Reloader) Reload(ctx context.Context) (plugins.Changes, error) {
	c, err := r.cfg.Registry.Reload(ctx)
	if err == nil {
		r.Report(c)
	}
	return c, err
}

// Report reports the changes of a reload, unless there are none. Reports do not overlap.
func (r *Reloader) Report(c plugins.Changes) {
	if c.Empty() {
		return
	}
	r.reports.Lock()
	defer r.reports.Unlock()

	r.cfg.Audit.Reload(c)
	r.cfg.Audit.Grants(r.cfg.Registry.Plugins())
	r.cfg.Logger.Info("plugins reloaded", "added", c.Added, "changed", c.Changed, "removed", c.Removed, "problems", len(c.Problems))

	if r.cfg.OnReload != nil {
		r.cfg.OnReload(c)
	} else {
		for _, p := range c.Problems {
			r.cfg.Logger.Warn("plugin not loaded", "file", p.File, "error", p.Err)
		}
	}

	r.cfg.Offer()
	if c.Tools() {
		r.cfg.Tools.Send()
	}
}

// Watch sets whether changes of the folders cause a reload.
func (r *Reloader) Watch(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
	case on && r.unwatch == nil:
		var ctx context.Context
		ctx, r.unwatch = context.WithCancel(context.Background())
		r.watching.Go(func() { r.cfg.Registry.Watch(ctx, r.Report) })
	case !on && r.unwatch != nil:
		r.unwatch()
		r.unwatch = nil
	}
}

// Close stops watching, permanently, and waits for a reload that is in progress.
func (r *Reloader) Close() {
	r.mu.Lock()
	r.closed = true
	if r.unwatch != nil {
		r.unwatch()
	}
	r.mu.Unlock()
	r.watching.Wait()
}
