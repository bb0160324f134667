package plugins

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/internal/signature"

	"github.com/toolhost/toolhost/internal/watch"
)

// Watch reloads when something in the folders changes, until ctx is done or the
// registry is closed. It begins with a reload, so that no change is missed. Package
// watch explains how it finds changes. Only folders made by [Dir] and the lock are
// watched.
//
// Watch calls notify after each reload that changed something.
func (r *Registry) Watch(ctx context.Context, notify func(Changes)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()

	find := func() string {
		cfg := r.set.Load().cfg
		var dirs []string
		for _, f := range cfg.Folders {
			if f.dir != "" {
				dirs = append(dirs, f.dir)
			}
		}
		return look(dirs, cfg.Lock.File)
	}
	watch.Poll(ctx, find, func() {
		if changes, err := r.Reload(ctx); err == nil && !changes.Empty() {
			notify(changes)
		}
	})
}

// look returns a text that changes whenever a plugin file, a sidecar, a signature or the
// lock changes, appears or disappears. It is empty without any of these.
func look(dirs []string, lockFile string) string {
	var text strings.Builder
	if lockFile != "" {
		watch.Describe(&text, lockFile)
	}
	for _, dir := range dirs {
		watch.Describe(&text, dir)
		entries, _ := os.ReadDir(dir) // entries read before an error count
		for _, e := range entries {
			if isOurs(e.Name()) {
				watch.Describe(&text, filepath.Join(dir, e.Name()))
			}
		}
	}
	return text.String()
}

// isOurs reports whether a file name is that of a plugin, a sidecar, or a signature of one.
func isOurs(name string) bool {
	for _, ending := range signature.Endings {
		name = strings.TrimSuffix(name, ending)
	}
	return strings.HasSuffix(name, ".wasm") || slices.ContainsFunc(sidecars, func(s string) bool { return strings.HasSuffix(name, s) })
}
