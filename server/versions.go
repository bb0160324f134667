package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
)

// versions stores the plugins that waiting runs continue with, whatever happens to the
// plugins' own files and to how the host starts them. Each is a folder:
//
//	DIGEST/DIGEST.wasm   the plugin, with DIGEST.toolhost.yaml if it has a sidecar, and signatures
//	DIGEST/IMAGE.image   the memory that it starts with
//
// With an engine that other hosts may share, the folders are copies of what it stores.
type versions struct {
	dir    string // below Config.DataDir; empty keeps none
	shared *shelf // nil: no other host needs them

	mu   sync.Mutex
	kept map[string]*version // by digest; of this process
}

// version is a plugin that was kept.
type version struct {
	images map[string]bool // by digest
	used   time.Time
	shared time.Time // when it was kept for other hosts
}

// versionsKept is how often versions that no run needs are removed.
const versionsKept = 10 * time.Minute

func newVersions(dataDir string, shared engine.Engine) *versions {
	v := &versions{kept: map[string]*version{}}
	if dataDir != "" {
		v.dir = filepath.Join(dataDir, "versions")
	}
	if dataDir != "" && shared != nil {
		v.shared = &shelf{shared}
	}
	return v
}

func (v *versions) folder(digest string) string { return filepath.Join(v.dir, digest) }

func (v *versions) imageFile(digest, image string) string {
	return filepath.Join(v.folder(digest), image+".image")
}

// keep stores a plugin and its initial memory.
func (v *versions) keep(ctx context.Context, p *plugins.Plugin, image host.Image) error {
	if v.dir == "" {
		return nil
	}
	digest, err := p.Digest()
	if err != nil {
		return err
	}

	v.mu.Lock()
	defer v.mu.Unlock()
	have := v.kept[digest]
	if have == nil {
		if _, err := os.Stat(filepath.Join(v.folder(digest), digest+".wasm")); err != nil {
			if err := p.Keep(v.folder(digest)); err != nil {
				return err
			}
		}
		have = &version{images: map[string]bool{}}
		v.kept[digest] = have
	}
	have.used = time.Now()

	if !have.images[image.Digest] {
		file := v.imageFile(digest, image.Digest)
		if _, err := os.Stat(file); err != nil {
			if err := owned.WriteFile(file, image.Encode()); err != nil {
				return err
			}
		}
		have.images[image.Digest], have.shared = true, time.Time{}
	}
	if v.shared == nil || time.Since(have.shared) < shelfFresh {
		return nil
	}
	if err := v.share(context.WithoutCancel(ctx), digest); err != nil {
		return err
	}
	have.shared = time.Now()
	return nil
}

// share stores the files of a version for other hosts. The plugin itself comes last:
// hosts do not use a version without it.
func (v *versions) share(ctx context.Context, digest string) error {
	entries, err := os.ReadDir(v.folder(digest))
	if err != nil {
		return err
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int { return pluginLast(a.Name(), b.Name()) })

	for _, entry := range entries {
		err := v.shared.keep(ctx, digest, entry.Name(), func() ([]byte, error) {
			return owned.ReadFile(filepath.Join(v.folder(digest), entry.Name()))
		})
		if err != nil {
			return fmt.Errorf("keeping %s for other hosts: %w", entry.Name(), err)
		}
	}
	return nil
}

// pluginLast sorts the plugin itself after the other files of its version.
func pluginLast(a, b string) int {
	rank := func(name string) int {
		if strings.HasSuffix(name, ".wasm") {
			return 1
		}
		return 0
	}
	return cmp.Compare(rank(a), rank(b))
}

// fetch gets a version that another host stored, if this one lacks it.
func (v *versions) fetch(ctx context.Context, digest string) error {
	if v.shared == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	plugin := filepath.Join(v.folder(digest), digest+".wasm")
	if _, err := os.Stat(plugin); err == nil {
		return nil
	}

	names, err := v.shared.names(ctx, digest)
	if err != nil || !slices.Contains(names, digest+".wasm") {
		return err
	}
	slices.SortStableFunc(names, pluginLast)
	for _, name := range names {
		if err := v.fetchFile(ctx, digest, name); err != nil {
			return err
		}
	}
	v.kept[digest] = &version{images: map[string]bool{}, used: time.Now()}
	return nil
}

func (v *versions) fetchFile(ctx context.Context, digest, name string) error {
	data, err := v.shared.file(ctx, digest, name)
	if err != nil {
		return err
	}
	return owned.WriteFile(filepath.Join(v.folder(digest), name), data)
}

// image returns the memory of a plugin right after its start.
func (v *versions) image(ctx context.Context, digest, image string) ([]byte, error) {
	data, err := owned.ReadFile(v.imageFile(digest, image))
	if errors.Is(err, fs.ErrNotExist) && v.shared != nil {
		if err := v.fetchFile(ctx, digest, image+".image"); err != nil {
			return nil, err
		}
		return owned.ReadFile(v.imageFile(digest, image))
	}
	return data, err
}

// forget removes the versions that no run needs, and returns their digests. Versions that
// are stored while needed runs stay.
func (v *versions) forget(needed func() (map[string]bool, error)) (forgotten []string, err error) {
	began := time.Now()
	entries, err := os.ReadDir(v.dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil, nil
	}
	var needs map[string]bool
	if err == nil {
		needs, err = needed()
	}
	if err != nil {
		return nil, err
	}

	v.mu.Lock()
	defer v.mu.Unlock()
	for _, entry := range entries {
		digest := entry.Name()
		if have := v.kept[digest]; needs[digest] || have != nil && !have.used.Before(began) {
			continue
		}
		delete(v.kept, digest)
		err = errors.Join(err, os.RemoveAll(v.folder(digest)))
		forgotten = append(forgotten, digest)
	}
	return forgotten, err
}

// needed returns the versions of plugins that the states of active runs belong to.
func (s *store) needed(ctx context.Context) (map[string]bool, error) {
	active, err := s.engine.List(ctx, engine.Query{Active: true})
	needs := map[string]bool{}
	for _, r := range active {
		if r.StateSize > 0 {
			needs[r.Version] = true
		}
	}
	return needs, err
}

// forgetVersions removes versions that no run needs any more, until ctx is done.
func (x executor) forgetVersions(ctx context.Context) {
	s := x.service
	ticker := time.NewTicker(versionsKept)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		forgotten, err := s.versions.forget(func() (map[string]bool, error) { return s.needed(ctx) })
		for _, digest := range forgotten {
			s.registry.Forget(ctx, digest)
		}
		if s.versions.shared != nil {
			err = errors.Join(err, s.versions.shared.forget(ctx, func() (map[string]bool, error) { return s.needed(ctx) }))
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("plugins that no run waits with any more were not removed", "folder", s.versions.dir, "error", err)
		}
	}
}

// lookup returns the tool of a run. A run that waits with another version of its plugin
// gets that one, any other the current one.
func (x executor) lookup(ctx context.Context, run engine.Run) (*catalog.Tool, error) {
	s := x.service
	tool, err := s.catalog.Find(ctx, run.Tool)
	if run.StateSize == 0 || s.versions.dir == "" || !filepath.IsLocal(run.Version) || err == nil && sameVersion(tool, run) == nil {
		return tool, err
	}

	if problem := s.versions.fetch(ctx, run.Version); problem != nil {
		s.log.Warn("the version of a plugin that a run waits with was not fetched", "task_id", run.ID, "version", run.Version, "error", problem)
	}
	p, problem := s.registry.Version(ctx, s.versions.folder(run.Version), run.Plugin, run.Version)
	switch {
	case problem == nil:
		for _, t := range p.Tools {
			if t.Name == run.Tool {
				return catalog.OfPlugin(t, s.now()), nil
			}
		}
	case errors.Is(problem, plugins.ErrNotAccepted):
		return nil, reason.Refuse("the plugin of %s was replaced in the meantime, and toolhost.lock has only the new version", run.Tool)
	case !errors.Is(problem, fs.ErrNotExist):
		s.log.Warn("a run that waits cannot continue with the version of its plugin", "task_id", run.ID, "version", run.Version, "error", problem)
	}
	return tool, err
}
