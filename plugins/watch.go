package plugins

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The pace of watching. Folders are read again once two polls in a row find the same,
// so that a file is not read while it is copied, or after maxDelay if something always
// changes.
const (
	pollEvery = 200 * time.Millisecond
	maxDelay  = 5 * time.Second
	backoff   = 3 // times the duration of a poll and its reload is the least pause after it
)

// Watch reloads when something in the folders changes, until ctx is done or the
// registry is closed. It begins with a reload, so that no change is missed. It polls
// by path: a folder may appear later or be replaced as a whole, links may be switched,
// and any file system will do.
//
// Watch calls notify after each reload that was not empty. Only folders made by [Dir]
// are watched; without one Watch returns at once.
func (r *Registry) Watch(ctx context.Context, notify func(Changes)) {
	var dirs []string
	for _, f := range r.cfg.Folders {
		if f.dir != "" {
			dirs = append(dirs, f.dir)
		}
	}
	if dirs == nil {
		return
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()

	loaded, last := "", "" // what the folders looked like at the last reload, and at the last poll
	for changed := time.Now(); ctx.Err() == nil; {
		begin := time.Now()
		now := look(dirs, r.cfg.PinDir)
		switch settled := now == last; {
		case now == loaded:
			changed = begin
		case settled || begin.Sub(changed) >= maxDelay:
			loaded, changed = now, begin
			if changes, err := r.Reload(ctx); err == nil && !changes.Empty() {
				notify(changes)
			}
		}

		last = now
		pause(ctx, max(pollEvery, min(backoff*time.Since(begin), maxDelay)))
	}
}

// look describes folders as they are now: a file of a plugin, a sidecar or a pin that
// changes, comes or goes changes the text.
func look(dirs []string, pinDir string) string {
	var text strings.Builder
	for _, dir := range append(dirs, pinDir) {
		describeFile(&text, dir)
		entries, _ := os.ReadDir(dir) // what was read before an error counts
		for _, e := range entries {
			if dir == pinDir || isOurs(e.Name()) {
				describeFile(&text, filepath.Join(dir, e.Name()))
			}
		}
	}
	return text.String()
}

func describeFile(text *strings.Builder, path string) {
	info, err := os.Stat(path)
	if err != nil {
		fmt.Fprintln(text, path, err)
		return
	}
	inode, changed, _ := inodeOf(info)
	fmt.Fprintln(text, path, info.Mode(), info.Size(), info.ModTime().UnixNano(), inode, changed.UnixNano())
}

// isOurs reports whether a file name is that of a plugin or a sidecar.
func isOurs(name string) bool {
	return strings.HasSuffix(name, ".wasm") || slices.ContainsFunc(sidecars, func(s string) bool { return strings.HasSuffix(name, s) })
}

// pause returns after d, or when ctx is done.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
