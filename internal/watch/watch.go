// Package watch calls a function once files have changed and then stayed the same for a moment.
//
// It polls by path: a file or its folder may appear later or be replaced as a whole, links may
// be redirected, and it works with any file system.
package watch

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// How often to poll and when to report. A change is reported once two polls in a row have the
// same result, so that no file is read while it is being copied, or after maxDelay if something
// changes all the time.
const (
	pollEvery = 200 * time.Millisecond
	maxDelay  = 5 * time.Second
	backoff   = 3 // shortest pause after a poll, as a multiple of the time that the poll and its call of changed took
)

// Poll calls changed whenever look returns a different text than it did before the last call of
// changed. It also calls changed if the first text is not empty, so that no change is missed. It
// returns when ctx is done.
func Poll(ctx context.Context, look func() string, changed func()) {
	reported, last := "", "" // what was found at the last call of changed, and at the last poll
	for since := time.Now(); ctx.Err() == nil; {
		begin := time.Now()
		now := look()
		switch settled := now == last; {
		case now == reported:
			since = begin
		case settled || begin.Sub(since) >= maxDelay:
			reported, since = now, begin
			changed()
		}

		last = now
		select {
		case <-time.After(max(pollEvery, min(backoff*time.Since(begin), maxDelay))):
		case <-ctx.Done():
		}
	}
}

// Describe appends a line that identifies the file at a path. The line changes when the path
// leads to a different file, when the content changes, and when its state changes, for example
// when the file disappears.
func Describe(text *strings.Builder, path string) {
	info, err := os.Stat(path)
	if err != nil {
		fmt.Fprintln(text, path, err)
		return
	}
	inode, changed, _ := Inode(info)
	fmt.Fprintln(text, path, info.Mode(), info.Size(), info.ModTime().UnixNano(), inode, changed.UnixNano())
}
