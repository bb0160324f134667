// Package versions keeps the versions of plugins that waiting runs continue with, whatever
// happens to the plugins' own files and to how the host starts them.
package versions

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
)

// Config says where versions are kept, and for which runs.
type Config struct {
	DataDir      string        // parent of the folder of versions; empty keeps none
	Runs         Runs          // gives access to the runs, some of which may need a version to continue
	SharedValues engine.Values // values of the engine that other hosts share; nil if there are no other hosts
	Registry     Registry
	Logger       *slog.Logger
}

// Runs gives access to the runs of an engine.
type Runs interface {
	List(ctx context.Context, q engine.Query) ([]engine.Run, error)
}

// Registry loads versions: see [plugins.Registry].
type Registry interface {
	Version(ctx context.Context, dir, name, digest string) (*plugins.Plugin, error)
	Forget(ctx context.Context, digest string)
}

// Plugin is a loaded plugin: see [plugins.Plugin].
type Plugin interface {
	Digest() (string, error)
	Keep(dir string) error
}

// A Store keeps versions of plugins. Each is a folder:
//
//	DIGEST/DIGEST.wasm   the plugin, with DIGEST.toolhost.yaml if it has a sidecar, and signatures
//	DIGEST/IMAGE.image   the memory that it starts with
//
// With an engine that other hosts share, the folders are copies of what the engine stores.
// It is safe for concurrent use.
type Store struct {
	cfg     Config
	dir     string  // folder of the versions; empty if there is none
	archive archive // shared with other hosts, if there are any

	mu   sync.Mutex
	uses map[string]*use // uses of versions, by digest
}

// A use is the last use of a version by this process.
type use struct {
	at     time.Time
	shared time.Time // when its files were last in the archive; zero if some may be missing
}

// New returns a Store.
func New(cfg Config) *Store {
	s := &Store{cfg: cfg, archive: archive{cfg.SharedValues}, uses: map[string]*use{}}
	if cfg.DataDir != "" {
		s.dir = filepath.Join(cfg.DataDir, "versions")
	}
	return s
}

func (s *Store) folder(digest string) string     { return filepath.Join(s.dir, digest) }
func (s *Store) file(digest, name string) string { return filepath.Join(s.folder(digest), name) }

func pluginFile(digest string) string { return digest + ".wasm" }
func imageFile(digest string) string  { return digest + ".image" }

// Keep stores a plugin and the memory that it starts with.
func (s *Store) Keep(ctx context.Context, p Plugin, image host.Image) error {
	if s.dir == "" {
		return nil
	}
	digest, err := p.Digest()
	if err != nil {
		return err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uses[digest]
	if u == nil {
		u = &use{}
		s.uses[digest] = u
	}
	u.at = time.Now()

	err = s.ensure(digest, pluginFile(digest), u, func(string) error { return p.Keep(s.folder(digest)) })
	if err == nil {
		err = s.ensure(digest, imageFile(image.Digest), u, func(file string) error { return owned.WriteFile(file, image.Encode()) })
	}
	if err == nil && s.cfg.SharedValues != nil && time.Since(u.shared) >= freshFor {
		err = s.share(context.WithoutCancel(ctx), digest, u)
	}
	return err
}

// ensure writes a file of a version, unless it is there.
func (s *Store) ensure(digest, name string, u *use, write func(file string) error) error {
	file := s.file(digest, name)
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	u.shared = time.Time{}
	return write(file)
}

// share puts the files of a version into the archive.
func (s *Store) share(ctx context.Context, digest string, u *use) error {
	entries, err := os.ReadDir(s.folder(digest))
	if err != nil {
		return err
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}

	for _, name := range pluginLast(names, digest) {
		err := s.archive.put(ctx, digest, name, func() ([]byte, error) { return owned.ReadFile(s.file(digest, name)) })
		if err != nil {
			return fmt.Errorf("keeping %s for other hosts: %w", name, err)
		}
	}
	u.shared = time.Now()
	return nil
}

// pluginLast moves the plugin itself after the other files of its version: without it, a
// version is not used.
func pluginLast(names []string, digest string) []string {
	plugin := pluginFile(digest)
	return append(slices.DeleteFunc(names, func(name string) bool { return name == plugin }), plugin)
}

// Tool returns the tool of a run, in the version that the waiting run needs to continue. The
// error matches [fs.ErrNotExist] if that version was not kept or its plugin is no longer
// loaded, and [plugins.ErrNotAccepted] if the lock accepts another version of the plugin.
func (s *Store) Tool(ctx context.Context, run engine.Run) (*plugins.Tool, error) {
	if s.dir == "" || !filepath.IsLocal(run.Version) {
		return nil, fs.ErrNotExist
	}
	if err := s.fetch(ctx, run.Version); err != nil {
		s.cfg.Logger.Warn("the version of a plugin that a run waits with was not fetched", "task_id", run.ID, "version", run.Version, "error", err)
	}

	p, err := s.cfg.Registry.Version(ctx, s.folder(run.Version), run.Plugin, run.Version)
	if err != nil {
		return nil, err
	}
	for _, t := range p.Tools {
		if t.Name == run.Tool {
			return t, nil
		}
	}
	return nil, fs.ErrNotExist
}

// fetch gets a version from the archive, unless it is here.
func (s *Store) fetch(ctx context.Context, digest string) error {
	if s.cfg.SharedValues == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := os.Stat(s.file(digest, pluginFile(digest))); err == nil {
		return nil
	}

	names, err := s.archive.list(ctx, digest)
	if err != nil || !slices.Contains(names, pluginFile(digest)) {
		return err
	}
	for _, name := range pluginLast(names, digest) {
		if err := s.fetchFile(ctx, digest, name); err != nil {
			return err
		}
	}
	s.uses[digest] = &use{at: time.Now()}
	return nil
}

func (s *Store) fetchFile(ctx context.Context, digest, name string) error {
	data, err := s.archive.get(ctx, digest, name)
	if err != nil {
		return err
	}
	return owned.WriteFile(s.file(digest, name), data)
}

// Image returns the encoded memory that a version starts with. The error matches
// [fs.ErrNotExist] if it was not kept.
func (s *Store) Image(ctx context.Context, version, image string) ([]byte, error) {
	if s.dir == "" {
		return nil, fs.ErrNotExist
	}
	name := imageFile(image)
	data, err := owned.ReadFile(s.file(version, name))
	if !errors.Is(err, fs.ErrNotExist) || s.cfg.SharedValues == nil {
		return data, err
	}
	if err := s.fetchFile(ctx, version, name); err != nil {
		return nil, err
	}
	return owned.ReadFile(s.file(version, name))
}
