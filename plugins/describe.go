package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/owned"
)

// errLate says that there was no time left for a plugin to describe itself.
var errLate = errors.New("out of time")

// described caches by digest the manifests of plugins that were late, until they are
// loaded, and the errors of plugins that failed: they would fail again.
type described struct {
	mu   sync.Mutex
	made map[string]description
}

type description struct {
	document []byte
	err      error
}

// maxDescribed bounds the cache.
const maxDescribed = 1 << 14

// take returns what is known of a plugin, and removes a document.
func (d *described) take(digest string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	made := d.made[digest]
	if made.err == nil {
		delete(d.made, digest)
	}
	return made.document, made.err
}

func (d *described) put(digest string, document []byte, err error) {
	if err != nil && !atFault(err) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.made == nil || len(d.made) >= maxDescribed {
		d.made = map[string]description{}
	}
	d.made[digest] = description{document, err}
}

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

// describe asks the plugin itself, unless its answer is cached. A plugin for which
// there is not enough time is late.
func (l *loader) describe(p *Plugin) ([]byte, error) {
	if !p.Info.Describe {
		return nil, host.ErrNoManifest
	}
	digest, err := p.Digest()
	if err != nil {
		return nil, err
	}
	if document, err := l.described.take(digest); document != nil || err != nil {
		return document, err
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
		return nil, fmt.Errorf("describing it takes too long: %w: run toolhost compile, or give it a manifest in a custom section or a sidecar", err)
	}
	if err != nil {
		l.described.put(digest, nil, err)
		return nil, err
	}
	if err := cacheManifest(cached, document); err != nil {
		l.problem(cached, err)
	}

	return document, nil
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
	return p.host.DescribeWith(ctx, wasm, opts)
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
func (r *Registry) describeLate(ctx context.Context, opts host.CompileOptions) error {
	changed := false
	for _, p := range r.set.Load().late {
		document, err := p.describe(ctx, opts)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if digest := p.known(); digest != "" {
			r.described.put(digest, document, err)
			changed = changed || err == nil || atFault(err) || r.host.Refused(digest) != nil
		}
		if err == nil {
			_ = cacheManifest(cachedManifest(r.cfg.CacheDir, p.known()), document) // else it is asked again by the next process
		}
	}

	if !changed {
		return nil
	}
	_, err := r.Reload(ctx)
	return err
}
