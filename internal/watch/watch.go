// Package watch calls a function after files have changed and then stayed the same for a moment.
//
// It polls by path: a file or its folder may appear later or be replaced as a whole, links
// may be switched, and any file system will do.
package watch

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// The pace. A change is reported once two polls in a row find the same, so that a file is
// not read while it is copied, or after maxDelay if something always changes.
const (
	pollEvery = 200 * time.Millisecond
	maxDelay  = 5 * time.Second
	backoff   = 3 // times the duration of a poll and of what it led to is the least pause after it
)

// Poll calls changed whenever look returns a different text than at the last call of
// changed. It also calls changed if the first text is not empty, so that it misses no
// change. It returns when ctx is done.
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

// Describe appends a line that identifies the file at a path. The line differs for another
// file, other content, or another state, such as a missing file.
func Describe(text *strings.Builder, path string) {
	info, err := os.Stat(path)
	if err != nil {
		fmt.Fprintln(text, path, err)
		return
	}
	inode, changed, _ := Inode(info)
	fmt.Fprintln(text, path, info.Mode(), info.Size(), info.ModTime().UnixNano(), inode, changed.UnixNano())
}
