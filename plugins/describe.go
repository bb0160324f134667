package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/owned"
)

// errLate says that no time was left for a plugin to describe itself.
var errLate = errors.New("out of time")

// atFault reports whether an error of describing is the plugin's fault, so that it
// would fail again.
func atFault(err error) bool {
	for _, reason := range []error{host.ErrABI, host.ErrTrap, host.ErrFuel, host.ErrMemory, host.ErrOutput, host.ErrNoManifest} {
		if errors.Is(err, reason) {
			return !errors.Is(err, host.ErrCompileLimit) && !errors.Is(err, host.ErrHostMemory)
		}
	}
	return false
}

// describe asks the plugin itself, unless its answer is known from an earlier reading
// or process. A plugin for which there is not enough time is late.
func (l *loader) describe(p *Plugin) ([]byte, error) {
	if !p.Info.Describe {
		return nil, p.Info.NoManifest()
	}
	digest, err := p.Digest()
	if err != nil {
		return nil, err
	}

	if before := l.lateBefore[p.at]; before != nil && before.known() == digest {
		if document, err := before.description(); document != nil || err != nil {
			l.failed(p, err)
			return document, err
		}
	}
	cached := cachedManifest(l.cfg.CacheDir, digest)
	if document, err := owned.ReadFile(cached); err == nil && json.Valid(document) {
		return document, nil
	}
	if err := l.host.Refused(digest); err != nil && !slices.Contains(l.cfg.Interpret, allPlugins) {
		return nil, err
	}

	document, err := p.describe(l.describing, host.CompileOptions{Time: quickCompileTime})
	if errors.Is(err, errLate) || errors.Is(err, host.ErrCompileLimit) && l.host.Refused(digest) == nil {
		l.late = append(l.late, p)
		return nil, fmt.Errorf("describing it takes too long: %w: a server does it in the background; for other commands run toolhost compile, or give it a manifest in a custom section or a sidecar", err)
	}
	if err != nil {
		l.failed(p, err)
		return nil, err
	}
	if err := cacheManifest(cached, document); err != nil {
		l.problem(cached, err)
	}

	return document, nil
}

// failed keeps a plugin that would fail again, so that it is not asked again.
func (l *loader) failed(p *Plugin, err error) {
	if atFault(err) {
		p.failed = err
		l.late = append(l.late, p)
	}
}

// description returns what describing a late plugin has led to: a manifest, an error
// that it would cause again, or nothing yet.
func (p *Plugin) description() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.document, p.failed
}

// quickCompileTime is the processor time for compiling a plugin that cannot be
// interpreted to describe it, while others wait.
const quickCompileTime = 5 * time.Second

// describe asks the plugin what it is.
func (p *Plugin) describe(ctx context.Context, opts host.CompileOptions) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	wasm, err := p.contents()
	if err != nil {
		return nil, err
	}
	return p.host.DescribeWith(ctx, wasm, host.DescribeOptions{Compile: opts})
}

// cachedManifest is the file with a plugin's description, empty without a cache.
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

// describeLate describes the late plugins, without the limit on time, and reloads if
// that changes something.
func (r *Registry) describeLate(ctx context.Context, opts host.CompileOptions) (Changes, error) {
	changed := false
	for _, p := range r.set.Load().late {
		if document, err := p.description(); document != nil || err != nil {
			continue
		}

		document, err := p.describe(ctx, opts)
		if ctx.Err() != nil {
			return Changes{}, context.Cause(ctx)
		}
		if err == nil {
			_ = cacheManifest(cachedManifest(r.cfg.CacheDir, p.known()), document) // else it is asked again by the next process
		}

		p.mu.Lock()
		p.document = document
		if atFault(err) {
			p.failed = err
		}
		p.mu.Unlock()
		changed = changed || err == nil || atFault(err) || p.known() != "" && r.host.Refused(p.known()) != nil
	}

	if !changed {
		return Changes{}, nil
	}
	return r.Reload(ctx)
}
