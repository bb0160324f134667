package plugins

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"reflect"
	"slices"

	"github.com/toolhost/toolhost/host"
)

// ErrReplaced is why a plugin is not called, and its digest not told: the
// registry has reloaded, and has another one in its place, or none. Nothing has
// run. Whoever looks the tool up again has what there is now.
var ErrReplaced = errors.New("the plugin was replaced or removed")

// Changes are what a reload has changed: names of plugins and of tools, sorted.
type Changes struct {
	Added, Changed, Removed []string // plugins

	// The tools as agents see them. One has changed if a model is to be told
	// otherwise of it; that of a plugin with new code and the old words has not.
	ToolsAdded, ToolsChanged, ToolsRemoved []string

	Problems []Problem // that were not there before
}

// Empty reports whether a reload has changed nothing, and met nothing new.
func (c Changes) Empty() bool {
	return len(c.Added)+len(c.Changed)+len(c.Removed)+len(c.Problems) == 0
}

// Tools reports whether models are to be told of other tools than before.
func (c Changes) Tools() bool {
	return len(c.ToolsAdded)+len(c.ToolsChanged)+len(c.ToolsRemoved) > 0
}

// Reload reads the folders anew, and returns what has changed. The result is
// what Open would find, with one exception: a plugin that can no longer be read
// or loaded, but that is compiled, goes on as it is, and is a problem. One whose
// file is gone is gone.
//
// A plugin that has not changed, nor its sidecar, is the same as before, with
// its compiled code and its warm instances. Of one that has, calls that run end
// in it, and the last of them frees it. All changes are seen at once.
//
// Reloads take turns. The error is the cause of ctx, or host.ErrClosed once the
// registry is closed; nothing has changed then.
func (r *Registry) Reload(ctx context.Context) (Changes, error) {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return Changes{}, context.Cause(ctx)
	case <-r.ctx.Done():
		return Changes{}, context.Cause(r.ctx)
	}

	defer func() { <-r.turn }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })()
	if r.ctx.Err() != nil {
		return Changes{}, context.Cause(r.ctx)
	}

	before := r.set.Load()
	now, err := r.read(ctx, before)
	if err != nil {
		return Changes{}, err
	}

	r.set.Store(now)
	select {
	case r.reloaded <- struct{}{}:
	default:
	}

	r.retire(context.WithoutCancel(ctx), before, now)
	return compare(before, now), nil
}

// Freeze ends the reload that runs, and waits for it. Later ones return
// host.ErrClosed. Lookups and calls go on.
func (r *Registry) Freeze() {
	r.frozen.Do(func() {
		r.stop(host.ErrClosed)
		r.turn <- struct{}{}
	})
}

// retire gives up the plugins of an earlier set that the new one does not have,
// and forgets those of even earlier ones that nobody uses any more.
func (r *Registry) retire(ctx context.Context, before, now *set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range before.plugins {
		if !slices.Contains(now.plugins, p) {
			_ = p.retire(ctx)
			r.retired = append(r.retired, p)
		}
	}
	r.retired = slices.DeleteFunc(r.retired, (*Plugin).idle)
}

// idle reports whether nothing of a retired plugin is left.
func (p *Plugin) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.module == nil && p.loading == 0
}

// same reports whether the files of a plugin are what they were when it was
// loaded.
func (l *loader) same(p *Plugin, stem string) bool {
	info, err := fs.Stat(p.folder, p.name)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	if s := stampOf(info); !p.seen.settled() || s.key() != p.seen.key() {
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

// keep returns the plugin that was loaded from a file that can no longer be
// loaded, if it is to go on, and what is wrong. What nobody has compiled cannot
// go on: there is no code of it left.
func (l *loader) keep(at place, err error) (*Plugin, error) {
	p := l.before[at]
	if p == nil || errors.Is(err, fs.ErrNotExist) || l.pinnedAway(p) || !p.hold() {
		return nil, err
	}
	return p, &keptError{err}
}

// keptError is what is wrong with the file of a plugin that goes on.
type keptError struct{ err error }

func (e *keptError) Error() string {
	return e.err.Error() + "; the version that was loaded before goes on until this is mended or the file removed"
}

func (e *keptError) Unwrap() error { return e.err }

// giveWay takes plugins out that would go on although their files are broken, but
// whose names another one has by now, that can be loaded: after a restart that
// one would be there.
func (l *loader) giveWay(found []*Plugin) []*Plugin {
	claimed := map[string]bool{}
	for _, p := range found {
		if !p.isHeld() {
			for _, claim := range p.claims() {
				claimed[claim] = true
			}
		}
	}

	return slices.DeleteFunc(found, func(p *Plugin) bool {
		if !p.isHeld() || !slices.ContainsFunc(p.claims(), func(c string) bool { return claimed[c] }) {
			return false
		}
		for i, problem := range l.problems {
			if kept, ok := problem.Err.(*keptError); ok && problem.File == p.File {
				l.problems[i].Err = kept.err
			}
		}
		return true
	})
}

// keepFolder returns the plugins that were loaded from a folder that can no
// longer be read, as far as they are to go on.
func (l *loader) keepFolder(i int, err error) (kept []*Plugin) {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for at, p := range l.before {
		if at.folder == i && !l.pinnedAway(p) && p.hold() {
			kept = append(kept, p)
		}
	}
	slices.SortFunc(kept, func(a, b *Plugin) int { return byFile(a.name, b.name) })
	return kept
}

// compare says what has changed from one set to another.
func compare(before, now *set) (c Changes) {
	had, have := map[string]*Plugin{}, map[string]*Plugin{}
	for _, p := range before.plugins {
		had[p.Manifest.Name] = p
	}
	for _, p := range now.plugins {
		have[p.Manifest.Name] = p
	}
	c.Added, c.Changed, c.Removed = differ(had, have, func(a, b *Plugin) bool { return a == b })
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

	return c
}

// sameWords reports whether models are told the same of two tools of a name.
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
