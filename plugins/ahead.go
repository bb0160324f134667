package plugins

import (
	"context"
	"errors"

	"github.com/toolhost/toolhost/host"
)

// CompileAhead compiles plugins before their first call: one at a time, at low
// priority, and after each reload the new ones. Plugins that took too long to
// describe themselves come last. It returns when ctx is done. A plugin that does not
// compile becomes a problem.
//
// If the host keeps compiled code in a folder, the code takes no memory before the
// first call.
func (r *Registry) CompileAhead(ctx context.Context) {
	low := host.CompileOptions{LowPriority: true}
	for {
		for _, p := range r.set.Load().plugins {
			if ctx.Err() != nil {
				return
			}
			_ = p.compileAhead(ctx, low) // a problem of the plugin, see Problems
		}

		_ = r.describeLate(ctx, low) // an error is that of ctx, or of a closed registry

		select {
		case <-r.reloaded:
		case <-ctx.Done():
			return
		}
	}
}

// compileAhead compiles the plugin unless that is not needed or cannot succeed.
func (p *Plugin) compileAhead(ctx context.Context, low host.CompileOptions) error {
	if p.interpret || p.stored.Load() || p.compiled() || p.Denied() != nil || errors.Is(p.failure(), host.ErrABI) {
		return nil
	}
	if _, err := p.use(ctx, low); err != nil {
		return err
	}
	p.stored.Store(p.host.KeepsCode())
	return p.leave(ctx, p.host.KeepsCode())
}
