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

// ErrReplaced says that a reload has replaced or removed the plugin. Nothing has run:
// look the tool up again.
var ErrReplaced = errors.New("the plugin was replaced or removed")

// Changes are the effects of a reload: sorted names of plugins and tools.
type Changes struct {
	Added, Changed, Removed []string // plugins

	// The tools as agents see them. A tool has changed if its definition for models
	// has: new code with the same manifest changes no tool.
	ToolsAdded, ToolsChanged, ToolsRemoved []string

	Problems []Problem // new ones, and a [GrantError] of each new plugin that lacks grants
}

// Empty reports whether a reload has changed nothing and found no new problem.
func (c Changes) Empty() bool {
	return len(c.Added)+len(c.Changed)+len(c.Removed)+len(c.Problems) == 0
}

// Tools reports whether the definitions of tools for models have changed.
func (c Changes) Tools() bool {
	return len(c.ToolsAdded)+len(c.ToolsChanged)+len(c.ToolsRemoved) > 0
}

// Reload reads the folders again and returns what has changed. The result is that of
// [Open], with one exception: a compiled plugin whose file can no longer be read or
// loaded stays in use and is a problem. A plugin whose file was removed is removed.
//
// A plugin that has not changed, and whose sidecar has not, keeps its compiled code and
// warm instances. Calls of a changed plugin finish in the old code, and the last one
// frees it. All changes become visible at once.
//
// Concurrent reloads run one after the other. The error is the cause of ctx, or
// host.ErrClosed once the registry is closed; nothing has changed then.
func (r *Registry) Reload(ctx context.Context) (Changes, error) { return r.reload(ctx, nil) }

// reload reads the folders, with other grants if there are any. It changes no other
// part of the configuration: the watcher reads that.
func (r *Registry) reload(ctx context.Context, grants *map[string]Grant) (Changes, error) {
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

	earlier := r.cfg.Grants
	if grants != nil {
		r.cfg.Grants = *grants
	}
	before := r.set.Load()
	now, err := r.read(ctx, before)
	if err != nil {
		r.cfg.Grants = earlier
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

// Regrant replaces what the operator grants, and reloads. A plugin whose grants have
// changed is loaded anew: its active calls keep what they were granted.
func (r *Registry) Regrant(ctx context.Context, grants map[string]Grant) (Changes, error) {
	return r.reload(ctx, &grants)
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
func (l *loader) same(p *Plugin, stem string) bool {
	info, err := fs.Stat(p.folder, p.name)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	if s := stampOf(info); s.settled == "" || s != p.seen {
		digest, s, err := hashFile(p.folder, p.name)
		if err != nil || digest != p.known() {
			return false
		}
		p.seen = s
	}

	name, sidecar, err := l.sidecar(p, stem)
	if p.Info.Manifest != nil {
		l.ignored(p, name)
		return true
	}
	beside := ""
	if name != "" {
		beside = digestOf(sidecar)
	}

	return err == nil && beside == p.beside && (name == "" || name == p.Source)
}

// keep returns the plugin that was loaded earlier from a file that now cannot be
// loaded, with the problem. It is nil if the plugin cannot stay in use: its file is
// gone, another one is pinned, its grants have changed, or it was never compiled, so
// that its code is lost.
func (l *loader) keep(at place, err error) (*Plugin, error) {
	p := l.before[at]
	if p == nil || errors.Is(err, fs.ErrNotExist) || l.pinnedAway(p) || !l.sameGrant(p) || !p.hold() {
		return nil, err
	}
	return p, fmt.Errorf("%w; the earlier version stays in use until the file is repaired or removed", err)
}

// giveWay removes plugins that are kept although their files are broken, if a plugin
// that does load has one of their names: after a restart only that one would be there.
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

// keepFolder returns the plugins that stay in use of a folder that can no longer be
// read.
func (l *loader) keepFolder(i int, err error) (kept []*Plugin) {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for at, p := range l.before {
		if at.folder == i && !l.pinnedAway(p) && l.sameGrant(p) && p.hold() {
			kept = append(kept, p)
		}
	}
	slices.SortFunc(kept, func(a, b *Plugin) int { return cmp.Compare(a.name, b.name) })
	return kept
}

// compare says what has changed from one set to another.
func compare(before, now *set) (c Changes) {
	c.Added, c.Changed, c.Removed = differ(before.byName(), now.byName(), func(a, b *Plugin) bool { return a == b })
	c.ToolsAdded, c.ToolsChanged, c.ToolsRemoved = differ(before.tools, now.tools, sameWords)
	known := map[string]bool{}
	for _, p := range before.problems {
		known[p.String()] = true
	}

	for _, p := range now.problems {
		if !known[p.String()] {
			c.Problems = append(c.Problems, p)
		}
	}
	for _, p := range now.plugins {
		if len(p.Missing) > 0 && !slices.Contains(before.plugins, p) {
			c.Problems = append(c.Problems, Problem{p.File, &GrantError{p}})
		}
	}
	return c
}

func (s *set) byName() map[string]*Plugin {
	plugins := map[string]*Plugin{}
	for _, p := range s.plugins {
		plugins[p.Manifest.Name] = p
	}
	return plugins
}

// sameWords reports whether two tools have the same definition for models.
func sameWords(a, b *Tool) bool {
	return a == b || reflect.DeepEqual(a.Tool, b.Tool) && slices.Equal(a.Plugin.Missing, b.Plugin.Missing) &&
		a.Plugin.Manifest.Name == b.Plugin.Manifest.Name
}

// differ compares by name. What it returns is sorted.
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
