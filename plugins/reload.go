package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"

	"github.com/toolhost/toolhost/host"
)

// ErrReplaced means that a reload has replaced or removed the plugin. Nothing has
// run: look the tool up again.
var ErrReplaced = errors.New("the plugin was replaced or removed")

// Changes are the effects of a reload: sorted names of plugins and tools.
type Changes struct {
	Added, Changed, Removed []string // plugins

	// Names of tools as agents see them. A tool has changed if its definition for
	// models has changed: new code with the same manifest changes no tool.
	ToolsAdded, ToolsChanged, ToolsRemoved []string

	Problems []Problem // new problems, and a [GrantError] for each new plugin with tools that lack grants, unless it belongs to a pack

	Solved []string // files that had problems and have none now, except those of plugins in Added or Changed; sorted

	Overridden []Problem // new entries of [Registry.Overridden]
}

// Empty reports whether a reload has changed nothing and found no new problem.
func (c Changes) Empty() bool {
	return len(c.Added)+len(c.Changed)+len(c.Removed)+len(c.Problems)+len(c.Solved) == 0
}

// Tools reports whether the definitions of tools for models have changed.
func (c Changes) Tools() bool {
	return len(c.ToolsAdded)+len(c.ToolsChanged)+len(c.ToolsRemoved) > 0
}

// Reload reads the folders again and returns the changes. The result is the same as
// that of [Open], with one exception: a plugin whose file can no longer be read or loaded
// stays in use and is a problem, if it has been called, or compiled by a host that keeps
// code. A plugin whose file was removed is removed.
//
// A plugin whose file and sidecar are unchanged keeps its compiled code and warm
// instances. Calls of a changed plugin finish in the old code, and the last one frees
// it. All changes become visible at once.
//
// Concurrent reloads run one after the other. The error is the cause of ctx, or
// host.ErrClosed once the registry is closed; nothing has changed then.
func (r *Registry) Reload(ctx context.Context) (Changes, error) {
	return r.Reconfigure(ctx, func(*Config) {})
}

// Reconfigure is like Reload, but with another configuration. change gets a copy of the
// current one, and may set Folders, Grants, Interpret, Verifier, Lock and Attached; other
// fields are ignored. A plugin whose grants or verifier have changed is loaded again; its
// active calls keep their grants. A new lock replaces the earlier one. If it cannot be
// read, that is an error, and nothing changes. Concurrent changes are made one after the
// other.
func (r *Registry) Reconfigure(ctx context.Context, change func(*Config)) (Changes, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })()
	select {
	case r.reading <- struct{}{}:
		defer func() { <-r.reading }()
	case <-ctx.Done():
		return Changes{}, context.Cause(ctx)
	}

	if r.ctx.Err() != nil {
		return Changes{}, context.Cause(r.ctx)
	}

	before := r.set.Load()
	wanted := before.cfg
	change(&wanted)
	cfg := before.cfg
	cfg.Folders, cfg.Grants, cfg.Interpret, cfg.Verifier, cfg.Lock, cfg.Attached = wanted.Folders, wanted.Grants, wanted.Interpret, wanted.Verifier, wanted.Lock, wanted.Attached
	if cfg.Lock.File != before.cfg.Lock.File {
		if _, err := cfg.Lock.Read(); err != nil {
			return Changes{}, fmt.Errorf("%s: it cannot be used: %w", cfg.Lock.File, err)
		}
	}
	now, err := r.read(ctx, before, cfg)
	if err != nil {
		return Changes{}, err
	}

	select {
	case r.reloaded <- struct{}{}:
	default:
	}

	for _, p := range before.plugins {
		if !slices.Contains(now.plugins, p) {
			_ = p.retire(context.WithoutCancel(ctx), ErrReplaced)
		}
	}
	return compare(before, now), nil
}

// Freeze stops a running reload and waits for it. Later reloads return host.ErrClosed.
// Lookups and calls still work.
func (r *Registry) Freeze() {
	r.frozen.Do(func() {
		r.stop(host.ErrClosed)
		r.reading <- struct{}{}
	})
}

// same reports whether the files of a plugin are unchanged since it was loaded.
func (l *loader) same(p *Plugin) bool {
	info, err := fs.Stat(p.folder, p.name)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	if s := stampOf(info); s.settled == "" || s != p.seen {
		digest, s, err := hashFile(p.folder, p.name, p.host.PluginSize())
		if err != nil || digest != p.known() {
			return false
		}
		p.seen = s
	}

	side, err := p.sidecar()
	if p.Info.Manifest != nil {
		l.ignored(p, side.name)
		return l.sameSignatures(p, "")
	}
	beside := ""
	if side.name != "" {
		beside = digestOf(side.manifest)
	}

	return err == nil && beside == p.beside && (side.name == "" || side.name == p.Source) && l.sameSignatures(p, side.name)
}

// keep returns the earlier version of a plugin whose file cannot be loaded now, with the
// problem. It is nil if the plugin cannot stay in use: its file is gone, its grants have
// changed, or this process has never compiled it, so that its code is lost. The last reason
// does not apply while the new version is being described: until then, calls get an error
// that tells them to try again. With a lock it returns the accepted version.
func (l *loader) keep(at place, folder Folder, err error) (*Plugin, error) {
	if l.lock != nil && !errors.Is(err, fs.ErrNotExist) {
		return l.keepLocked(at, folder, err)
	}
	p := l.before[at]
	if p == nil || errors.Is(err, fs.ErrNotExist) || !l.sameSettings(p) {
		return nil, err
	}
	if errors.Is(err, errPending) {
		p.held.Store(true)
		return p, fmt.Errorf("%w; the earlier version stays in use until then", err)
	}
	if !p.hold() {
		return nil, err
	}
	return p, fmt.Errorf("%w; the earlier version stays in use until the file is repaired or removed", err)
}

// giveWay removes plugins that are kept although their files are broken, if a plugin
// that does load uses one of their names: after a restart only that one would exist.
func (l *loader) giveWay(found []*Plugin) []*Plugin {
	held := func(p *Plugin) bool { return p.held.Load() }
	claims := claimed(slices.DeleteFunc(slices.Clone(found), held))
	return slices.DeleteFunc(found, func(p *Plugin) bool {
		if !held(p) || !slices.ContainsFunc(p.claims(), func(c string) bool { return claims[c] != nil }) {
			return false
		}
		for i, problem := range l.problems {
			if problem.File == p.File {
				l.problems[i].Err = errors.Unwrap(problem.Err) // see keep
			}
		}
		return true
	})
}

// keepFolder returns the plugins that stay in use although their folder can no
// longer be read.
func (l *loader) keepFolder(i int, folder Folder, err error) (kept []*Plugin) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case l.lock != nil:
		return l.lockedFolder(i, folder, err)
	}
	for at, p := range l.before {
		if at.folder == i && l.sameSettings(p) && p.hold() {
			kept = append(kept, p)
		}
	}
	slices.SortFunc(kept, func(a, b *Plugin) int { return cmp.Compare(a.name, b.name) })
	return kept
}

// compare returns the changes from one set to another.
func compare(before, now *set) (c Changes) {
	c.Added, c.Changed, c.Removed = differ(before.byName(), now.byName(), sameVersion)
	c.ToolsAdded, c.ToolsChanged, c.ToolsRemoved = differ(before.tools, now.tools, sameWords)
	c.Problems = newOnes(before.problems, now.problems)
	c.Solved = solved(before, now)
	c.Overridden = newOnes(before.overridden, now.overridden)
	for _, p := range now.plugins {
		if len(p.Missing) > 0 && !p.Pack && !slices.Contains(before.plugins, p) {
			c.Problems = append(c.Problems, Problem{p.File, &GrantError{p}})
		}
	}
	return c
}

// newOnes returns the problems that are new.
func newOnes(before, now []Problem) (added []Problem) {
	known := map[string]bool{}
	for _, p := range before {
		known[p.String()] = true
	}
	for _, p := range now {
		if !known[p.String()] {
			added = append(added, p)
		}
	}
	return added
}

// solved returns the files that had problems and have none now, sorted, except those of
// plugins that the reload has added or changed.
func solved(before, now *set) (files []string) {
	for _, p := range before.problems {
		still := slices.ContainsFunc(now.problems, func(n Problem) bool { return n.File == p.File })
		loaded := slices.ContainsFunc(now.plugins, func(n *Plugin) bool { return n.File == p.File && !slices.Contains(before.plugins, n) })
		if !still && !loaded {
			files = append(files, p.File)
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

func (s *set) byName() map[string]*Plugin {
	plugins := map[string]*Plugin{}
	for _, p := range s.plugins {
		plugins[p.Manifest.Name] = p
	}
	return plugins
}

// sameSettings reports whether the configuration of a plugin is unchanged.
func (l *loader) sameSettings(p *Plugin) bool {
	return reflect.DeepEqual(p.granted, l.cfg.Grants[p.Manifest.Name]) && p.interpret == l.interprets(p) &&
		(!l.verifies(p) && p.verifier == nil || reflect.DeepEqual(p.verifier, l.cfg.Verifier))
}

// sameVersion reports whether two plugins are the same, or one is the kept, accepted
// version of the other.
func sameVersion(a, b *Plugin) bool {
	return a == b || (a.kept || b.kept) && reflect.DeepEqual(a.locked, b.locked) && reflect.DeepEqual(a.Grant, b.Grant)
}

// sameWords reports whether two tools have the same definition for models.
func sameWords(a, b *Tool) bool {
	return a == b || reflect.DeepEqual(a.Tool, b.Tool) && slices.Equal(a.Missing, b.Missing) &&
		a.Plugin.Manifest.Name == b.Plugin.Manifest.Name
}

// differ compares two maps. Its results are sorted.
func differ[T any](had, have map[string]T, same func(a, b T) bool) (added, changed, removed []string) {
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if before, ok := had[name]; !ok {
			added = append(added, name)
		} else if !same(before, have[name]) {
			changed = append(changed, name)
		}
	}

	for _, name := range slices.Sorted(maps.Keys(had)) {
		if _, ok := have[name]; !ok {
			removed = append(removed, name)
		}
	}
	return added, changed, removed
}
