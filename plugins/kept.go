package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/lock"
	"github.com/toolhost/toolhost/internal/owned"
)

// Accepted plugins are kept in a folder for each module, sidecar and signer, with their
// signatures. The file keeps its name, because the manifest of some plugins depends on it:
//
//	MODULE/NAME.wasm
//	MODULE-SIDECAR/NAME.wasm, with NAME.toolhost.json
//	MODULE-SIGNER/NAME.wasm, with NAME.wasm.minisig

// errNotKept means that the accepted version of a plugin was not kept.
var errNotKept = fmt.Errorf("the accepted version is not kept here: %w", fs.ErrNotExist)

// keptFor is how long an unused version is kept.
const keptFor = 30 * 24 * time.Hour

// keptDir returns the folder of an accepted plugin.
func keptDir(kept string, e *lock.Plugin) string {
	name := strings.TrimPrefix(e.Module, "sha256:")
	if e.Sidecar != "" {
		name += "-" + strings.TrimPrefix(e.Sidecar, "sha256:")
	}
	if e.Signer != nil { // otherwise a later signature would be missing
		name += "-" + lock.Short(lock.Digest([]byte(e.SignedBy())))
	}
	return filepath.Join(kept, name)
}

// keepAccepted keeps a plugin of the lock, if it is not kept yet.
func (l *loader) keepAccepted(p *Plugin) {
	if l.lock == nil || l.cfg.Lock.Kept == "" || p.locked == nil || p.kept {
		return
	}
	if err := p.KeepAs(l.cfg.Lock.Kept, p.locked); err != nil {
		l.problem(p.File, fmt.Errorf("the accepted version cannot be kept: %w", unpath(err)))
	}
}

// KeepAs stores the files of the plugin in kept, a folder of accepted plugins: see [Lock].
// Files that are already there are marked as used.
func (p *Plugin) KeepAs(kept string, e *lock.Plugin) error {
	dir := keptDir(kept, e)
	if _, err := os.Stat(filepath.Join(dir, e.File())); err == nil {
		return touch(dir)
	}
	return p.keep(dir, strings.TrimSuffix(e.File(), ".wasm"))
}

// touch marks a kept version as used, about once a day.
func touch(dir string) error {
	info, err := os.Stat(dir)
	if err != nil || time.Since(info.ModTime()) < 24*time.Hour {
		return err
	}
	return os.Chtimes(dir, time.Time{}, time.Now())
}

// keptVersion loads the accepted version of the plugin at a place.
func (l *loader) keptVersion(at place, folder Folder, e *lock.Plugin) (*Plugin, error) {
	if l.cfg.Lock.Kept == "" {
		return nil, errNotKept
	}
	dir := keptDir(l.cfg.Lock.Kept, e)
	if err := owned.Folder(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errNotKept
		}
		return nil, err
	}

	p := l.newPlugin(at, folder)
	p.folder, p.name, p.kept, p.locked = Dir(dir).FS, e.File(), true, e
	if err := l.read(p, strings.TrimSuffix(p.name, ".wasm")); err != nil {
		return nil, fmt.Errorf("the accepted version in %s cannot be loaded: %w", dir, err)
	}
	_ = touch(dir) // without this it may be removed after a month, which the next load reports
	return p, nil
}

// Version loads the accepted version of a plugin from Kept, with no grants, in order to
// inspect its manifest. Signatures are not verified. The error matches fs.ErrNotExist if that
// version is not kept.
func (k Lock) Version(ctx context.Context, h *host.Host, e *lock.Plugin) (*Plugin, error) {
	l := newLoader(ctx, h, Config{Lock: k})
	l.digests, l.anySigner = openDigests(""), true
	l.lock = &lock.File{Plugins: []lock.Plugin{*e}}
	folder := Folder{Path: e.Source, Source: e.Source, Pack: e.Source == lock.Starter, BuiltIn: e.Source == lock.BuiltIn}
	return l.keptVersion(place{name: e.File()}, folder, e)
}

// keepLocked returns the accepted version of a plugin whose file differs from it, with
// the problem.
func (l *loader) keepLocked(at place, folder Folder, err error) (*Plugin, error) {
	e := l.accepted(folder.LockSource(), at.name)
	if e == nil || errors.Is(err, errPending) && l.mayBe(e) {
		return nil, err
	}

	p := l.before[at]
	if p == nil || !l.sameLock(p, e) || !l.sameSettings(p) || !p.kept && !p.hold() {
		p = l.replaced
	}
	if p == nil {
		var why error
		if p, why = l.keptVersion(at, folder, e); why != nil {
			return nil, fmt.Errorf("%w; %w", err, why)
		}
	}
	l.problems = append(l.problems, p.notes...)
	return p, fmt.Errorf("%w; the accepted version stays in use", err)
}

// mayBe reports whether a plugin that has not been described may be the accepted one: it has
// that module, and no sidecar.
func (l *loader) mayBe(e *lock.Plugin) bool {
	p := l.undescribed[len(l.undescribed)-1]
	return e.Sidecar == "" && strings.TrimPrefix(e.Module, "sha256:") == p.known()
}

// lockedFolder returns the accepted plugins of a folder that cannot be read.
func (l *loader) lockedFolder(i int, folder Folder, err error) (kept []*Plugin) {
	for n := range l.lock.Plugins {
		e := &l.lock.Plugins[n]
		if e.Source != folder.LockSource() {
			continue
		}
		if p, err := l.keepLocked(place{i, e.File()}, folder, err); p != nil {
			kept = append(kept, p)
		} else {
			l.problem(folder.file(e.File()), err)
		}
	}
	return kept
}

// ForgetKept removes from the folder kept those versions that the lock does not need and that
// have not been used for a month.
func ForgetKept(kept string, f *lock.File) error {
	entries, err := os.ReadDir(kept)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}

	used := map[string]bool{}
	for i := range f.Plugins {
		used[filepath.Base(keptDir(kept, &f.Plugins[i]))] = true
	}
	for _, entry := range entries {
		info, statErr := entry.Info()
		if statErr == nil && !used[entry.Name()] && time.Since(info.ModTime()) > keptFor {
			err = errors.Join(err, os.RemoveAll(filepath.Join(kept, entry.Name())))
		}
	}
	return err
}
