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

// The pace of watching. A file that is being copied is read when nothing has
// changed for the time of quiet; where something always does, folders are read
// all the same once patience is over. All of it bounds what a busy folder, or a
// hostile one, costs.
const (
	quiet    = 200 * time.Millisecond
	moment   = 5 * time.Millisecond // between events that wait
	patience = 5 * time.Second
	burst    = 1024 // events that are looked at in a time of quiet
	respite  = 3    // times as long as it took to read the folders, before they are read again; at most patience

	maxWatched = 1024 // folders, those that links lead to included
)

// Watch reloads when something in the folders changes, until ctx is done or the
// registry is closed. It begins with a reload, so that nothing is missed that
// has changed since the last one. A folder may appear later, and it, or a link
// that leads to it or to a file in it, may be replaced as a whole.
//
// It tells each reload that was not empty, and an error for folders that cannot
// be watched: the system has a limit for that, and some file systems report
// nothing. These are as they were reloaded last. Folders that are not of the
// system (see [Dir]) are not watched; if all are such it returns at once.
func (r *Registry) Watch(ctx context.Context, told func(Changes, error)) {
	if !slices.ContainsFunc(r.cfg.Folders, func(f Folder) bool { return f.dir != "" }) {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	defer context.AfterFunc(r.ctx, cancel)()
	for failed := ""; ctx.Err() == nil; {
		w, err := watch(r.watched())
		if err != nil && err.Error() != failed { // it comes again each time
			failed = err.Error()
			told(Changes{}, err)
		}

		begin := time.Now()
		changes, err := r.Reload(ctx)
		if err == nil && !changes.Empty() {
			told(changes, nil)
		}

		pause(ctx, min(respite*time.Since(begin), patience))
		w.wait(ctx)
		w.close()
	}
}

// watched are the folders to watch: those of plugins, and that of pins.
func (r *Registry) watched() []Folder {
	if r.cfg.PinDir == "" {
		return r.cfg.Folders
	}
	return append(slices.Clone(r.cfg.Folders), Dir(r.cfg.PinDir))
}

// watches are folders that are watched, from when they were looked at until the
// next change. They are made anew after each: what is watched are folders and
// not their names, which may have come to lead to others.
type watches struct {
	system *fsnotify.Watcher // nil: nothing is watched
	events <-chan fsnotify.Event
	errors <-chan error
	names  map[string][]string // by folder, the entries that matter; nil: all of them
}

// watch begins to watch folders. The error says what of them is not watched.
func watch(folders []Folder) (*watches, error) {
	w := &watches{names: map[string][]string{}}
	var err error
	if w.system, err = fsnotify.NewWatcher(); err != nil {
		return w, fmt.Errorf("the plugins are not watched, and have to be reloaded by hand: %w", err)
	}
	w.events, w.errors = w.system.Events, w.system.Errors

	failed := map[string]error{}
	// A link that was replaced before its folder was watched would not be
	// noticed, so that it is looked at again.
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
			errs = append(errs, fmt.Errorf("the folder %s is not watched, and plugins there have to be reloaded by hand: %w", dir, failed[dir]))
		}
	}

	return w, errors.Join(errs...)
}

func (w *watches) add(dir string) error {
	if len(w.names) >= maxWatched {
		return fmt.Errorf("there are %d others already", maxWatched)
	}
	err := w.system.Add(dir)
	if errors.Is(err, syscall.ENOSPC) { // which says something else to most
		err = errors.New("the system's limit of watches is reached")
	}
	return err
}

// interesting returns the folders to watch, and which entries of them matter;
// nil is all.
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

// isOurs reports whether a name is that of a plugin or a sidecar.
func isOurs(name string) bool {
	return strings.HasSuffix(name, ".wasm") || slices.ContainsFunc(sidecars, func(s string) bool { return strings.HasSuffix(name, s) })
}

func (w *watches) close() {
	if w.system != nil {
		_ = w.system.Close()
	}
}

// wait waits until something has changed, and then until nothing more does.
func (w *watches) wait(ctx context.Context) {
	for changed := false; !changed; {
		select {
		case <-ctx.Done():
			return
		case e := <-w.events:
			changed = w.matters(e)
		case <-w.errors: // most often that there were too many events
			changed = true
		}

		for begin, more := time.Now(), true; more && time.Since(begin) < patience; {
			pause(ctx, quiet)
			more = w.drain()
			changed = changed || more
		}
	}
}

// drain takes the events that are there, and reports whether one matters. It
// leaves some if there are very many. They come one by one: the next may take a
// moment.
func (w *watches) drain() (matter bool) {
	next := time.NewTimer(moment)
	defer next.Stop()
	for range burst {
		select {
		case e := <-w.events:
			matter = matter || w.matters(e)
		case <-w.errors:
			matter = true
		case <-next.C:
			return matter
		}
		next.Reset(moment)
	}

	return matter
}

// matters reports whether it is about an entry that matters, or a folder itself.
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
