package plugins

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/toolhost/toolhost/host"
)

// Compile compiles the plugins that were not called yet, several at a time, so that
// their first calls need not wait for it. If the host has a folder for compiled code,
// the code is stored there and takes no memory before the first call. Plugins that a
// reload adds meanwhile are not compiled.
//
// After each plugin it calls progress, unless that is nil, with the number of plugins
// done and in total, the file and its error; these calls do not overlap. The returned
// error joins the errors of the plugins, or is the cause of ctx.
func (r *Registry) Compile(ctx context.Context, progress func(done, total int, file string, err error)) error {
	if err := r.describeLate(ctx, host.CompileOptions{}); err != nil {
		return err
	}

	var (
		mu   sync.Mutex
		errs []error
	)
	plugins := r.set.Load().plugins
	each(ctx, len(plugins), func(i int) {
		p := plugins[i]
		_, err := p.use(ctx, host.CompileOptions{})
		if err == nil {
			err = p.leave(ctx, p.host.KeepsCode())
		}
		if errors.Is(err, ErrReplaced) {
			err = nil // nobody calls it any more
		}

		mu.Lock()
		defer mu.Unlock()
		if progress != nil {
			progress(len(errs)+1, len(plugins), p.File, err)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", p.File, err)
		}

		errs = append(errs, err)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	return errors.Join(errs...)
}

// Compile compiles the plugin unless it is compiled, so that its next call need not
// wait for it. The error names the file, or is the cause of ctx.
func (p *Plugin) Compile(ctx context.Context) error {
	if _, err := p.use(ctx, host.CompileOptions{}); err != nil {
		return fmt.Errorf("%s: %w", p.File, err)
	}
	p.unuse()
	return nil
}

// compilation is a compilation that callers wait for. It is canceled when none of
// them waits any more.
type compilation struct {
	done    chan struct{} // closed when module and err are there
	module  *host.Module
	err     error
	waiting int
	low     bool // at low priority
	cancel  context.CancelCauseFunc

	overtaken bool // another one has taken its place
}

// errOvertaken ends a compilation at low priority: a call needs the plugin, which is
// compiled anew for it.
var errOvertaken = errors.New("a call waits for the plugin")

// use returns the compiled plugin, which the caller gives back with unuse or leave.
// Callers share one compilation; the options are those of the one that this call
// starts. If it fails the next caller tries again, since the cause may have been the
// disk; the host refuses a faulty module at once. Use returns the cause of ctx as soon
// as it is done.
func (p *Plugin) use(ctx context.Context, opts host.CompileOptions) (*host.Module, error) {
	p.mu.Lock()
	switch {
	case p.module != nil:
		defer p.mu.Unlock()
		p.users++
		return p.module, nil
	case p.gone != nil:
		defer p.mu.Unlock()
		return nil, p.gone
	}

	c := p.compiling
	if c != nil && c.low && !opts.LowPriority { // no process can have a higher priority than it began with
		c.overtaken = true
		c.cancel(errOvertaken)
		c = nil
	}
	if c == nil {
		c = p.start(ctx, opts)
	}

	c.waiting++
	p.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		if p.giveUp(c, context.Cause(ctx)) {
			return nil, context.Cause(ctx)
		}
	}

	return c.module, p.replaced(c.err)
}

// compiled reports whether use returns at once.
func (p *Plugin) compiled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.module != nil
}

// giveUp is for a caller that no longer waits for a compilation. It is false if
// the compilation has ended, and its outcome is the caller's.
func (p *Plugin) giveUp(c *compilation, cause error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.compiling != c {
		return c.overtaken
	}
	if c.waiting--; c.waiting == 0 {
		c.cancel(cause)
		p.compiling = nil // the next caller starts anew
	}
	return true
}

// unuse ends what use began. What could not be freed is freed with the host.
func (p *Plugin) unuse() { _ = p.leave(context.Background(), false) }

// leave ends what use began. The last user frees the compiled plugin if free is set
// or the plugin is retired.
func (p *Plugin) leave(ctx context.Context, free bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users--
	if p.gone == nil && (p.held.Load() || !free) {
		return nil
	}
	return p.free(ctx)
}

// free frees the compiled plugin unless it is in use. The caller holds p.mu.
func (p *Plugin) free(ctx context.Context) error {
	if p.users > 0 || p.module == nil {
		return nil
	}
	module := p.module
	p.module = nil
	return module.Close(ctx)
}

// hold keeps the compiled plugin, which cannot be compiled again because its file has
// changed. It returns false if the plugin is not compiled.
func (p *Plugin) hold() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held.Store(p.module != nil)
	return p.module != nil
}

// retire refuses new users. The compiled code is freed now or by the last user.
func (p *Plugin) retire(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone == nil {
		p.gone = ErrReplaced
	}
	if p.compiling != nil && p.compiling.low {
		p.compiling.cancel(p.gone)
	}
	return p.free(ctx)
}

// replaced adds to an error that the plugin is retired, if it is.
func (p *Plugin) replaced(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && p.gone != nil {
		err = fmt.Errorf("%w: %w", p.gone, err)
	}
	return err
}

// start begins a compilation. The caller holds p.mu.
func (p *Plugin) start(ctx context.Context, opts host.CompileOptions) *compilation {
	c := &compilation{done: make(chan struct{}), low: opts.LowPriority}
	ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	p.compiling = c
	p.loading++
	p.compilations.Go(func() {
		defer c.cancel(nil)
		module, err := p.load(ctx, opts)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.loading--
		if p.compiling != c { // no caller waits for it any more
			if module != nil {
				_ = module.Close(ctx)
			}
			c.err = errOvertaken
			close(c.done)
			return
		}

		c.module, c.err = module, err
		p.compiling, p.module, p.failed = nil, module, err
		if err == nil {
			p.users = c.waiting
			if p.gone != nil {
				_ = p.free(ctx) // unless a caller waits
			}
		}

		close(c.done)
	})

	return c
}

// load compiles the file if it is unchanged.
func (p *Plugin) load(ctx context.Context, opts host.CompileOptions) (*host.Module, error) {
	wasm, err := p.contents()
	if err != nil {
		return nil, err
	}

	opts.Interpret = p.interpret
	defer p.digests.save() // the next process finds by digest what is refused
	return p.host.CompileWith(ctx, wasm, opts)
}

// contents reads the file if it is unchanged, and learns its digest if that is unknown.
func (p *Plugin) contents() ([]byte, error) {
	wasm, s, err := readFile(p.folder, p.name, MaxWasm)
	if err != nil {
		return nil, missing(err)
	}

	switch digest, known := digestOf(wasm), p.known(); {
	case known == "" && !s.sameContent(p.stamp):
		return nil, ErrChanged
	case known == "":
		p.learn(s, digest)
	case known != digest:
		p.digests.forget(p.stamp)
		return nil, ErrChanged
	}
	return wasm, nil
}

// failure is the error of the last compilation, of this process or, once the digest
// is known, an earlier one. It is nil if there was none or the plugin is compiled.
func (p *Plugin) failure() error {
	p.mu.Lock()
	module, failed := p.module, p.failed
	p.mu.Unlock()
	if digest := p.known(); failed == nil && module == nil && digest != "" && !p.interpret {
		return p.host.Refused(digest)
	}
	return failed
}

// close frees the compiled code and stops compilations. A call that still runs frees
// the code when it ends.
func (p *Plugin) close(ctx context.Context) error {
	p.mu.Lock()
	p.gone = host.ErrClosed
	if p.compiling != nil {
		p.compiling.cancel(host.ErrClosed)
	}
	p.mu.Unlock()
	p.compilations.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free(ctx)
}

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
