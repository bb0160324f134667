package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/owned"
)

// errPending means that a plugin still has to be described.
var errPending = errors.New("it has no manifest in the file or next to it: it is being compiled to ask for it, and its tools follow; toolhost seal writes the manifest into the file")

// atFault reports whether the plugin caused an error of describing, so that it
// would fail again.
func atFault(err error) bool {
	for _, reason := range []error{host.ErrABI, host.ErrTrap, host.ErrFuel, host.ErrMemory, host.ErrOutput, host.ErrNoManifest} {
		if errors.Is(err, reason) {
			return !errors.Is(err, host.ErrCompileLimit) && !errors.Is(err, host.ErrHostMemory)
		}
	}
	return false
}

// description is the result of describing a plugin. It is shared by all plugins
// loaded from an unchanged file.
type description struct {
	mu       sync.Mutex
	manifest []byte    // JSON; nil if unknown
	err      error     // error of the last attempt
	at       time.Time // time of the last attempt
}

// askAgain is the pause before a plugin that could not be described, for example for lack of
// memory, is retried.
const askAgain = time.Minute

// get returns the manifest, or the error of the last attempt. Both are nil if the plugin has
// to be described.
func (d *description) get() (manifest []byte, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.manifest != nil || atFault(d.err) || time.Since(d.at) < askAgain {
		return d.manifest, d.err
	}
	return nil, nil
}

func (d *description) set(manifest []byte, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.manifest, d.err, d.at = manifest, err, time.Now()
}

// again reports whether to retry describing the plugin.
func (d *description) again() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err != nil && !atFault(d.err)
}

// describe runs the plugin's describe function, unless the result is known from an
// earlier reading or process.
func (l *loader) describe(p *Plugin) ([]byte, error) {
	if !p.Info.Describe {
		return nil, p.Info.NoManifest()
	}
	digest, err := p.Digest()
	if err != nil {
		return nil, err
	}

	p.description = l.described(p.at, digest)
	if manifest, err := p.description.get(); manifest != nil || err != nil {
		return manifest, err
	}
	cached := cachedManifest(l.cfg.CacheDir, digest)
	if manifest, err := owned.ReadFile(cached); err == nil && json.Valid(manifest) {
		p.description.set(manifest, nil)
		return manifest, nil
	}
	opts := l.cfg.describeOptions()
	if err := l.host.Refused(digest); err != nil && !opts.Interpret {
		return nil, err
	}
	if l.cfg.DescribeLater {
		return nil, errPending
	}

	manifest, err := p.describe(l.ctx, opts)
	if err != nil {
		return nil, err
	}
	if err := cacheManifest(cached, manifest); err != nil {
		l.problem(cached, err)
	}
	return manifest, nil
}

// described returns the description of the same file from the earlier reading, or a
// new one.
func (l *loader) described(at place, digest string) *description {
	for _, before := range []*Plugin{l.before[at], l.undescribedBefore[at]} {
		if before != nil && before.description != nil && before.known() == digest {
			return before.description
		}
	}
	return &description{}
}

// describeOptions returns the options for compiling a plugin whose name is not known
// yet. The plugin may be one that is otherwise never compiled.
func (c *Config) describeOptions() host.CompileOptions {
	return host.CompileOptions{Interpret: len(c.Interpret) > 0}
}

// describe compiles the plugin and runs its describe function.
func (p *Plugin) describe(ctx context.Context, opts host.CompileOptions) ([]byte, error) {
	wasm, err := p.contents()
	var manifest []byte
	if err == nil {
		manifest, err = p.host.DescribeWith(ctx, wasm, host.DescribeOptions{Compile: opts})
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}

	p.description.set(manifest, err)
	return manifest, err
}

// cachedManifest returns the name of the file that caches a plugin's description, or ""
// if there is no cache.
func cachedManifest(cacheDir, digest string) string {
	if cacheDir == "" {
		return ""
	}
	return filepath.Join(cacheDir, "manifest-"+digest+".json")
}

// cacheManifest stores a plugin's description, if name is not empty.
func cacheManifest(name string, document []byte) error {
	if name == "" {
		return nil
	}
	if err := owned.WriteFile(name, document); err != nil {
		return fmt.Errorf("the manifest cannot be cached: %w", unpath(err))
	}
	return nil
}

// describe describes the plugins whose manifests are not known. It reloads after each
// result, so that no plugin waits for a slower one, and calls report with the changes,
// unless report is nil.
func (r *Registry) describe(ctx context.Context, low bool, report func(Changes)) error {
	s := r.set.Load()
	opts := s.cfg.describeOptions()
	opts.LowPriority = low
	for _, p := range s.undescribed {
		if manifest, err := p.description.get(); manifest != nil || err != nil {
			continue
		}

		manifest, err := p.describe(ctx, opts)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			_ = cacheManifest(cachedManifest(r.cfg.CacheDir, p.known()), manifest) // otherwise the next process describes it again
		}

		c, err := r.Reload(ctx)
		if err != nil {
			return err
		}
		if report != nil && !c.Empty() {
			report(c)
		}
	}
	return nil
}
