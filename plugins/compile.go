package plugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/toolhost/toolhost/host"
)

// Compile compiles the plugins that have not been called yet, several at a time, so that their
// first calls need not wait. If the host has a folder for compiled code, the code is stored
// there and takes up no memory before the first call. Plugins that a reload adds in the
// meantime are not compiled.
//
// After each plugin it calls progress, unless that is nil, with the number of plugins done so
// far, the number of all of them, the plugin's file and its error; these calls do not overlap.
// The returned error joins the errors of the plugins, or is the cause of ctx.
func (r *Registry) Compile(ctx context.Context, progress func(done, total int, file string, err error)) error {
	if err := r.describe(ctx, false, nil); err != nil {
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
			err = nil // no caller is left
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

// Compile compiles the plugin unless it is already compiled, so that its next call need not
// wait. The error names the file, or is the cause of ctx.
func (p *Plugin) Compile(ctx context.Context) error {
	if _, err := p.use(ctx, host.CompileOptions{}); err != nil {
		return fmt.Errorf("%s: %w", p.File, err)
	}
	p.unuse()
	return nil
}

// compilation is a compilation in progress. It is canceled when no caller waits for
// it any longer, or when a caller needs it at a higher priority.
type compilation struct {
	done     chan struct{} // closed when module and err are set
	module   *host.Module
	err      error
	waiting  int
	low      bool // whether it runs at low priority
	canceled bool // whether it was canceled: callers then start over
	cancel   context.CancelCauseFunc
}

// errOvertaken ends a low-priority compilation because a call needs the plugin. It
// is started again for the call, since no process can raise its priority.
var errOvertaken = errors.New("a call waits for the plugin")

// use returns the compiled plugin. The caller returns it with unuse or leave. Callers
// share one compilation, with the options of the caller that started it. If it fails,
// the next caller tries again, since the cause may have been the disk; the host
// refuses a faulty module immediately. As soon as ctx is done, use returns its cause.
func (p *Plugin) use(ctx context.Context, opts host.CompileOptions) (*host.Module, error) {
	for {
		module, c, err := p.join(ctx, opts)
		if c == nil {
			return module, err
		}

		select {
		case <-c.done:
		case <-ctx.Done():
			if cause := context.Cause(ctx); p.giveUp(c, cause) {
				return nil, cause
			}
		}
		if c.module != nil || !c.canceled || opts.LowPriority || ctx.Err() != nil {
			return c.module, p.replaced(c.err)
		}
	}
}

// noticeable is how long a caller waits for a compilation before that is reported.
const noticeable = time.Second

// tellCompiling reports to a caller that it is waiting for a compilation, if that
// takes long. Call done with the outcome: no report follows it.
func (p *Plugin) tellCompiling(report func(host.Progress)) (done func(err error)) {
	if report == nil || p.compiled() {
		return func(error) {}
	}

	var telling sync.WaitGroup
	told, ended := false, make(chan struct{})
	telling.Go(func() {
		select {
		case <-time.After(noticeable):
			report(host.Progress{Status: "compiling " + p.Manifest.Name})
			told = true
		case <-ended:
		}
	})
	return func(err error) {
		close(ended)
		telling.Wait()
		if told && err == nil {
			report(host.Progress{Status: "running"})
		}
	}
}

// join registers the caller as a user of the compiled plugin, or returns the
// compilation to wait for, or an error if the plugin is retired.
func (p *Plugin) join(ctx context.Context, opts host.CompileOptions) (*host.Module, *compilation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch c := p.compiling; {
	case p.module != nil:
		p.users++
		return p.module, nil, nil
	case p.gone != nil:
		return nil, nil, p.gone
	case c == nil:
		p.start(ctx, opts)
	case c.low && !opts.LowPriority:
		c.stop(errOvertaken)
	}

	p.compiling.waiting++
	return nil, p.compiling, nil
}

// stop cancels the compilation. The caller holds the plugin's mu.
func (c *compilation) stop(cause error) {
	c.canceled = true
	c.cancel(cause)
}

// compiled reports whether use returns immediately.
func (p *Plugin) compiled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.module != nil
}

// compiledBefore reports whether the plugin is compiled, or its compiled code is kept.
func (p *Plugin) compiledBefore() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hasCode()
}

// hasCode is like compiledBefore, for callers that hold p.mu.
func (p *Plugin) hasCode() bool { return p.module != nil || p.code != host.Code{} }

// giveUp is called when a caller no longer waits for a compilation. It reports
// false if the compilation has ended, and the caller gets its outcome.
func (p *Plugin) giveUp(c *compilation, cause error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.compiling != c {
		return false
	}
	if c.waiting--; c.waiting == 0 {
		c.stop(cause)
	}
	return true
}

// unuse ends a use. Memory that cannot be freed now is freed with the host.
func (p *Plugin) unuse() { _ = p.leave(context.Background(), false) }

// leave ends a use. The last user frees the compiled plugin if free is set or the
// plugin is retired.
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

// hold keeps the plugin in use although its file has changed, if it is compiled or its
// compiled code is kept. It reports false otherwise: nothing is compiled for that.
func (p *Plugin) hold() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held.Store(p.hasCode())
	return p.hasCode()
}

// retire refuses new users with a reason. The compiled code is freed now or by the
// last user. After [host.ErrClosed], waiting callers stop waiting too.
func (p *Plugin) retire(ctx context.Context, why error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = why
	if c := p.compiling; c != nil && (c.low || why == host.ErrClosed) {
		c.stop(why)
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
func (p *Plugin) start(ctx context.Context, opts host.CompileOptions) {
	c := &compilation{done: make(chan struct{}), low: opts.LowPriority}
	ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	p.compiling = c
	p.compilations.Go(func() {
		defer c.cancel(nil)
		module, err := p.load(ctx, opts)

		p.mu.Lock()
		defer p.mu.Unlock()
		defer close(c.done)
		p.compiling = nil
		switch {
		case err == nil:
			c.module, p.module, p.code, p.users, p.failed = module, module, module.Code(), c.waiting, nil
			if p.gone != nil {
				_ = p.free(ctx) // unless a caller uses it
			}
		case c.canceled:
			c.err = context.Cause(ctx)
		default:
			c.err, p.failed = err, err
		}
	})
}

// load compiles the file if it is unchanged. For a plugin that is held, it loads the
// compiled code.
func (p *Plugin) load(ctx context.Context, opts host.CompileOptions) (*host.Module, error) {
	wasm, err := p.contents()
	if err != nil && p.held.Load() {
		if module, lost := p.host.Load(ctx, p.code); lost == nil {
			return module, nil
		}
	}
	if err != nil {
		return nil, err
	}

	opts.Interpret = p.interpret
	return p.host.CompileWith(ctx, wasm, opts)
}

// contents reads the file if it is unchanged, and records its digest if that is unknown.
func (p *Plugin) contents() ([]byte, error) {
	wasm, s, err := readFile(p.folder, p.name, p.host.PluginSize())
	if err != nil {
		return nil, missing(err)
	}

	defer p.digests.save() // the next process recognizes refused files by their digest
	switch digest, known := digestOf(wasm), p.known(); {
	case known == "" && !s.sameContent(p.stamp):
		return nil, ErrChanged
	case known == "":
		p.learn(s, digest)
	case known != digest:
		p.digests.add(s, digest) // in case the cached one is wrong
		return nil, ErrChanged
	}
	return wasm, nil
}

// failure returns the error of the last compilation, by this process or, once the
// digest is known, an earlier one. It is nil if there was none or the plugin is
// compiled.
func (p *Plugin) failure() error {
	p.mu.Lock()
	module, failed := p.module, p.failed
	p.mu.Unlock()
	if digest := p.known(); failed == nil && module == nil && digest != "" && !p.interpret {
		return p.host.Refused(digest)
	}
	return failed
}

// CompileAhead compiles plugins before their first call, one at a time and at low priority.
// After each reload it compiles the new ones. Plugins without a known manifest come first, see
// [Registry.DescribeAhead]. CompileAhead returns when ctx is done. A plugin that does not
// compile becomes a problem.
//
// If the host keeps compiled code in a folder, the code takes up no memory before the first
// call. Start either CompileAhead or DescribeAhead, and only once.
func (r *Registry) CompileAhead(ctx context.Context, report func(Changes)) {
	r.ahead(ctx, report, true)
}

// DescribeAhead is like [Registry.CompileAhead], but compiles only the plugins whose manifests
// are not known, and runs their describe functions. It calls report with the resulting changes,
// unless report is nil.
func (r *Registry) DescribeAhead(ctx context.Context, report func(Changes)) {
	r.ahead(ctx, report, false)
}

// Described waits until DescribeAhead or CompileAhead has described the initial plugins. It
// does not wait if [Config.DescribeLater] is not set. The error is the cause of ctx, or
// host.ErrClosed once the registry is closed.
func (r *Registry) Described(ctx context.Context) error {
	if !r.cfg.DescribeLater {
		return nil
	}
	select {
	case <-r.described:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
}

func (r *Registry) ahead(ctx context.Context, report func(Changes), all bool) {
	for first := true; ; first = false {
		if r.describe(ctx, true, report) != nil {
			return // ctx is done, or the registry is closed
		}
		if first {
			close(r.described)
		}

		for _, p := range r.set.Load().plugins {
			if !all || ctx.Err() != nil || len(r.reloaded) > 0 { // a reload may have added others to describe
				break
			}
			err := p.compileAhead(ctx, host.CompileOptions{LowPriority: true})
			if errors.Is(err, host.ErrSpace) && report != nil { // other reasons are reported by Problems
				report(Changes{Problems: []Problem{{p.File, err}}})
			}
		}

		if r.awaitReload(ctx, report) != nil {
			return
		}
	}
}

// awaitReload waits for the next reload. Meanwhile it retries plugins that could not be
// described.
func (r *Registry) awaitReload(ctx context.Context, report func(Changes)) error {
	for {
		var again <-chan time.Time
		if slices.ContainsFunc(r.set.Load().undescribed, func(p *Plugin) bool { return p.description.again() }) {
			again = time.After(askAgain)
		}
		select {
		case <-r.reloaded:
			return nil
		case <-again:
			if err := r.describe(ctx, true, report); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// compileAhead compiles the plugin, unless that is unnecessary or cannot succeed.
func (p *Plugin) compileAhead(ctx context.Context, low host.CompileOptions) error {
	if p.interpret || p.compiledBefore() || p.Denied() != nil || errors.Is(p.failure(), host.ErrABI) {
		return nil
	}
	if _, err := p.use(ctx, low); err != nil {
		return err
	}
	return p.leave(ctx, p.host.KeepsCode())
}
