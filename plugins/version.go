package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/toolhost/toolhost/internal/lock"
	"github.com/toolhost/toolhost/internal/owned"
)

// versions holds earlier versions of plugins, by digest.
type versions struct {
	mu     sync.Mutex
	loaded map[string]*Plugin
}

func (v *versions) all() []*Plugin {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(maps.Values(v.loaded))
}

// Files returns the files of the plugin as loaded, by name: its module, and the sidecar
// with its manifest, if there is one. The error is [ErrChanged] if they have changed
// since.
func (p *Plugin) Files() (map[string][]byte, error) {
	wasm, err := p.contents()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{p.name: wasm}
	if p.beside == "" {
		return files, nil
	}

	side, err := p.sidecar()
	if err == nil && digestOf(side.manifest) != p.beside {
		err = ErrChanged
	}
	if err != nil {
		return nil, missing(err)
	}
	files[side.name] = side.data
	return files, nil
}

// Keep stores the plugin's file in a folder, named after its digest, with its sidecar and their
// signatures, for [Registry.Version]. The error is [ErrChanged] if any of them has changed
// since the plugin was loaded.
func (p *Plugin) Keep(dir string) error {
	digest, err := p.Digest()
	if err != nil {
		return err
	}
	return p.keep(dir, digest)
}

// keep stores the files of the plugin in a folder under another name, the module last.
func (p *Plugin) keep(dir, stem string) error {
	files, err := p.Files()
	if err != nil {
		return err
	}
	sidecar := ""
	if p.beside != "" {
		sidecar = p.Source
	}
	maps.Copy(files, p.signatureFiles(sidecar).files)

	own := strings.TrimSuffix(p.name, ".wasm")
	keep := func(name string) error { // under the new stem
		return owned.WriteFile(filepath.Join(dir, stem+strings.TrimPrefix(name, own)), files[name])
	}
	for name := range files {
		if name == p.name {
			continue
		}
		if err := keep(name); err != nil {
			return err
		}
	}
	return keep(p.name)
}

// Version returns an earlier version of a loaded plugin, which [Plugin.Keep] has stored in a
// folder. It has the plugin's current grants. The error matches fs.ErrNotExist if the plugin is
// no longer loaded or that version was not kept, and [ErrNotAccepted] if the lock lists a
// different version of the plugin.
func (r *Registry) Version(ctx context.Context, dir, name, digest string) (*Plugin, error) {
	now := r.set.Load().byName()[name]
	switch {
	case now == nil:
		return nil, fmt.Errorf("the plugin %q: %w", name, fs.ErrNotExist)
	case now.locked != nil:
		return nil, &LockError{name, []string{lock.ModuleChange(now.locked.Module, lock.OfHex(digest))}}
	}

	r.versions.mu.Lock()
	defer r.versions.mu.Unlock()
	p := r.versions.loaded[digest]
	if p != nil && p.interpret == now.interpret && reflect.DeepEqual(p.Grant, now.Grant) && reflect.DeepEqual(p.verifier, now.verifier) {
		return p, nil
	}
	later, err := r.load(ctx, dir, now, digest)
	if err != nil {
		return nil, err
	}
	if p != nil {
		_ = p.retire(context.WithoutCancel(ctx), ErrReplaced)
	}
	if r.versions.loaded == nil {
		r.versions.loaded = map[string]*Plugin{}
	}
	r.versions.loaded[digest] = later
	return later, nil
}

// load loads a version of a plugin.
func (r *Registry) load(ctx context.Context, dir string, now *Plugin, digest string) (*Plugin, error) {
	if err := owned.Folder(dir); err != nil { // the digest does not cover the sidecar
		return nil, err
	}
	name := now.Manifest.Name
	folder := Dir(dir)
	folder.Pack, folder.BuiltIn, folder.source = now.Pack, now.builtIn, now.source
	cfg := Config{Folders: []Folder{folder}, Grants: map[string]Grant{name: now.Grant}, Verifier: now.verifier, CacheDir: r.cfg.CacheDir}
	if now.interpret {
		cfg.Interpret = []string{allPlugins}
	}
	l := newLoader(ctx, r.host, cfg)
	l.digests, l.compilations = r.digests, &r.compilations

	p, err := l.plugin(0, cfg.Folders[0], digest)
	if err != nil {
		return nil, err
	}
	switch have, err := p.Digest(); {
	case err != nil:
		return nil, err
	case have != digest || p.Manifest.Name != name:
		return nil, errors.New(p.File + " is not what its name says")
	}
	return p, nil
}

// Forget frees an earlier version that is no longer needed. Calls that are running
// finish in it.
func (r *Registry) Forget(ctx context.Context, digest string) {
	r.versions.mu.Lock()
	defer r.versions.mu.Unlock()
	if p := r.versions.loaded[digest]; p != nil {
		delete(r.versions.loaded, digest)
		_ = p.retire(ctx, ErrReplaced)
	}
}
