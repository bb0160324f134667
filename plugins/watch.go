package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// The pace of watching. Folders are read again once nothing has changed for the
// debounce time, so that a file is not read while it is copied, or after maxDelay if
// something always changes. These bound the cost of a busy or hostile folder.
const (
	debounce   = 200 * time.Millisecond
	eventPause = 5 * time.Millisecond // longest between two events of a burst
	maxDelay   = 5 * time.Second
	burst      = 1024 // most events read in one debounce time
	backoff    = 3    // times the duration of a reload is the pause before the next one, at most maxDelay

	maxWatched = 1024 // folders, with the targets of links
)

// Watch reloads when something in the folders changes, until ctx is done or the
// registry is closed. It begins with a reload, so that no change is missed. A folder
// may appear later. It may be replaced as a whole, and so may links to it and links to
// files in it.
//
// Watch calls notify after each reload that was not empty, and with an error for
// folders that cannot be watched: systems limit the number of watches, and some file
// systems report no changes. Such folders need a manual reload. Only folders made by
// [Dir] are watched; without one Watch returns at once.
func (r *Registry) Watch(ctx context.Context, notify func(Changes, error)) {
	if !slices.ContainsFunc(r.cfg.Folders, func(f Folder) bool { return f.dir != "" }) {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	defer context.AfterFunc(r.ctx, cancel)()
	for failed := ""; ctx.Err() == nil; {
		w, err := watch(append(slices.Clone(r.cfg.Folders), Folder{dir: r.cfg.PinDir}))
		if err != nil && err.Error() != failed { // report a repeated error once
			failed = err.Error()
			notify(Changes{}, err)
		}

		begin := time.Now()
		changes, err := r.Reload(ctx)
		if err == nil && !changes.Empty() {
			notify(changes, nil)
		}

		pause(ctx, min(backoff*time.Since(begin), maxDelay))
		w.wait(ctx)
		w.close()
	}
}

// watches watches folders until the next change. They are made anew after each change,
// because the system watches folders, not paths, and a path may now lead elsewhere.
type watches struct {
	*fsnotify.Watcher
	names map[string][]string // relevant entries by folder; nil means all
}

// watch starts watching. The error names the folders that are not watched.
func watch(folders []Folder) (*watches, error) {
	system, err := fsnotify.NewWatcher()
	if err != nil { // its nil channels report nothing
		return &watches{Watcher: &fsnotify.Watcher{}}, fmt.Errorf("the plugins are not watched, reload them by hand: %w", err)
	}

	w := &watches{Watcher: system, names: map[string][]string{}}
	failed := map[string]error{}
	// A link may have been replaced before its folder was watched: look again.
	for range maxLinks {
		wanted := interesting(folders)
		fresh := false
		for _, dir := range slices.Sorted(maps.Keys(wanted)) {
			if _, watched := w.names[dir]; !watched && failed[dir] == nil {
				fresh = true
				failed[dir] = w.add(dir)
			}
			if failed[dir] == nil {
				w.names[dir] = wanted[dir]
			}
		}

		if !fresh {
			break
		}
	}

	var errs []error
	for _, dir := range slices.Sorted(maps.Keys(failed)) {
		if failed[dir] != nil {
			errs = append(errs, fmt.Errorf("the folder %s is not watched, reload its plugins by hand: %w", dir, failed[dir]))
		}
	}

	return w, errors.Join(errs...)
}

func (w *watches) add(dir string) error {
	if len(w.names) >= maxWatched {
		return fmt.Errorf("there are %d others already", maxWatched)
	}
	err := w.Add(dir)
	if errors.Is(err, syscall.ENOSPC) { // its own text speaks of disk space
		err = errors.New("the system's limit of watches is reached")
	}
	return err
}

// interesting returns the folders to watch and their relevant entries; nil means all.
func interesting(folders []Folder) map[string][]string {
	names := map[string][]string{}
	add := func(path string) string {
		real, turns := follow(path)
		for _, t := range turns {
			if some, all := names[t.dir]; !all || some != nil {
				names[t.dir] = append(some, t.name)
			}
		}
		return real
	}
	for _, f := range folders {
		path, err := filepath.Abs(f.dir)
		if f.dir == "" || err != nil {
			continue
		}
		real := add(path)
		entries, err := os.ReadDir(real)
		if real == "" || err != nil {
			continue
		}

		names[real] = nil
		for _, e := range entries {
			if e.Type()&os.ModeSymlink != 0 && isOurs(e.Name()) {
				add(filepath.Join(real, e.Name()))
			}
		}
	}

	return names
}

// isOurs reports whether a file name is that of a plugin or a sidecar.
func isOurs(name string) bool {
	return strings.HasSuffix(name, ".wasm") || slices.ContainsFunc(sidecars, func(s string) bool { return strings.HasSuffix(name, s) })
}

func (w *watches) close() {
	if w.names != nil {
		_ = w.Close()
	}
}

// wait waits for a change, and then until there are no more.
func (w *watches) wait(ctx context.Context) {
	for changed := false; !changed; {
		select {
		case <-ctx.Done():
			return
		case e := <-w.Events:
			changed = w.matters(e)
		case <-w.Errors: // most often too many events
			changed = true
		}

		for begin, more := time.Now(), true; more && time.Since(begin) < maxDelay; {
			pause(ctx, debounce)
			more = w.drain()
			changed = changed || more
		}
	}
}

// drain reads the waiting events, at most burst of them, and reports whether one
// matters. They arrive one by one, with short pauses.
func (w *watches) drain() (matter bool) {
	next := time.NewTimer(eventPause)
	defer next.Stop()
	for range burst {
		select {
		case e := <-w.Events:
			matter = matter || w.matters(e)
		case <-w.Errors:
			matter = true
		case <-next.C:
			return matter
		}
		next.Reset(eventPause)
	}

	return matter
}

// matters reports whether an event is about a relevant entry or a folder itself.
func (w *watches) matters(e fsnotify.Event) bool {
	if _, itself := w.names[e.Name]; itself {
		return true
	}
	names, watched := w.names[filepath.Dir(e.Name)]
	return watched && (names == nil || slices.Contains(names, filepath.Base(e.Name)))
}

// pause returns after d, or when ctx is done.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
