package compiler

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// Limits on a child's folder, which the system cannot limit. A build makes four files.
const (
	maxEntries    = 64      // files and folders
	maxFolder     = 1 << 30 // bytes in all files, and in each
	watchInterval = 10 * time.Millisecond
)

// maxThreads returns how many threads a child may have. Go's runtime needs a few for
// each processor, and RLIMIT_NPROC counts all processes of the user.
func maxThreads() int { return 64 + 8*runtime.NumCPU() }

// usage is what a child uses.
type usage struct {
	entries int // files and folders
	bytes   int64
	threads int
}

// problem returns an error that says what exceeds the needs of a build, or nil.
func (u usage) problem() error {
	switch {
	case u.entries > maxEntries:
		return exceeded(Excess, "more than %d files", maxEntries)
	case u.bytes > maxFolder:
		return exceeded(Excess, "more than %d MiB of files", maxFolder>>20)
	case u.threads > maxThreads():
		return exceeded(Excess, "more than %d threads", maxThreads())
	}
	return nil
}

// watch ends a child that uses more than a build needs.
type watch struct {
	dir  string
	stop context.CancelCauseFunc

	done     chan struct{}
	watching sync.WaitGroup
}

func (w *watch) start(pid int) {
	w.watching.Go(func() {
		tick := time.NewTicker(watchInterval)
		defer tick.Stop()
		for {
			select {
			case <-w.done:
				return
			case <-tick.C:
				w.check(hidden(pid))
			}
		}
	})
}

// end ends the watch after one last check of the folder.
func (w *watch) end() {
	close(w.done)
	w.watching.Wait()
	w.check(usage{})
}

func (w *watch) check(u usage) {
	u.addFolder(w.dir)
	if err := u.problem(); err != nil {
		w.stop(err)
	}
}

// addFolder counts the content of a folder, until it is too much. An unreadable folder is
// not the child's doing.
func (u *usage) addFolder(dir string) {
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer f.Close()

	for {
		entries, err := f.ReadDir(maxEntries)
		for _, e := range entries {
			u.entries++
			switch info, err := e.Info(); {
			case u.entries > maxEntries:
				return
			case e.IsDir():
				u.addFolder(filepath.Join(dir, e.Name()))
			case err == nil:
				u.bytes += onDisk(info)
			}
		}
		if err != nil {
			return
		}
	}
}
