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

// errLate is why a plugin is not loaded that has had no time to describe itself.
var errLate = errors.New("the time for that is over")

// lateError is what is wrong with a plugin that is not described yet.
type lateError struct{ err error }

func (e *lateError) Error() string {
	return fmt.Sprintf("describing it takes too long: %v: run toolhost compile, or give it a manifest in a custom section or a sidecar", e.err)
}

func (e *lateError) Unwrap() error { return e.err }

// described remembers what plugins that were late said of themselves, until they
// are loaded, and why plugins failed to: nothing else comes of asking again. Both
// are found by the digest of the plugin.
type described struct {
	mu        sync.Mutex
	documents map[string][]byte
	failed    map[string]error
}

// maxDescribed bounds both maps.
const maxDescribed = 1 << 14

// take returns what is known of a plugin. A document is forgotten with it.
func (d *described) take(digest string) (document []byte, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	document, err = d.documents[digest], d.failed[digest]
	delete(d.documents, digest)
	return document, err
}

func (d *described) put(digest string, document []byte, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.documents == nil || len(d.documents)+len(d.failed) >= maxDescribed {
		d.documents, d.failed = map[string][]byte{}, map[string]error{}
	}
	switch {
	case err == nil:
		d.documents[digest] = document
	case atFault(err):
		d.failed[digest] = err
	}
}

// atFault reports whether a plugin that could not be described is to blame, and
// would fail again.
func atFault(err error) bool {
	for _, reason := range []error{host.ErrABI, host.ErrTrap, host.ErrFuel, host.ErrMemory, host.ErrOutput, host.ErrNoManifest} {
		if errors.Is(err, reason) {
			return !errors.Is(err, host.ErrCompileLimit) && !errors.Is(err, host.ErrHostMemory)
		}
	}
	return false
}

// describe asks the plugin itself, unless it is known what it says. A plugin that
// takes long to compile for that, or comes when the time for it is over, is late.
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
	if cached != "" {
		if document, err := owned.ReadFile(cached); err == nil && json.Valid(document) {
			return document, nil
		}
	}

	if err := l.host.Refused(digest); err != nil && !slices.Contains(l.cfg.Interpret, allPlugins) {
		return nil, err
	}

	document, err := p.describe(l.describing, host.CompileOptions{Time: quickCompileTime})
	if errors.Is(err, errLate) || errors.Is(err, host.ErrCompileLimit) && l.host.Refused(digest) == nil {
		l.late = append(l.late, p)
		return nil, &lateError{err}
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

// quickCompileTime is how much processor time a plugin may take to be compiled
// that cannot be described without, while others wait for it.
const quickCompileTime = 5 * time.Second

// describe asks the plugin what it is.
func (p *Plugin) describe(ctx context.Context, opts host.CompileOptions) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	wasm, s, err := p.reread()
	if err != nil {
		return nil, err
	}
	if err := p.is(digestOf(wasm), s); err != nil {
		return nil, err
	}
	return p.host.DescribeWith(ctx, wasm, opts)
}

// cachedManifest is the file that keeps what a plugin said of itself, empty if
// none does.
func cachedManifest(cacheDir, digest string) string {
	if cacheDir == "" {
		return ""
	}
	return filepath.Join(cacheDir, "manifest-"+digest+".json")
}

// cacheManifest keeps what a plugin said of itself, if name is not empty.
func cacheManifest(name string, document []byte) error {
	if name == "" {
		return nil
	}
	if err := owned.WriteFile(name, document); err != nil {
		return fmt.Errorf("the manifest cannot be cached: %w", unpath(err))
	}
	return nil
}

// describeLate describes the plugins that were late, with all the time that
// compiling one may take, and reloads if that changes something.
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
