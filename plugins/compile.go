package plugins

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// Compile compiles the plugins that were not called yet, some at a time, so that
// no call has to wait for it. Nobody needs to: the first call of a plugin
// compiles it. After each plugin it tells progress, if that is not nil, how many
// of how many are done, which one it was, and what was wrong with it; these
// calls do not overlap. Its error joins those of the plugins, each with its
// file, and is the cause of the context once ctx is done.
func (r *Registry) Compile(ctx context.Context, progress func(done, total int, file string, err error)) error {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
		done int
	)
	work := make(chan *Plugin)
	for range min(runtime.GOMAXPROCS(0), len(r.plugins)) {
		wg.Go(func() {
			for p := range work {
				_, err := p.compile(ctx)
				mu.Lock()
				errs = append(errs, err)
				if done++; progress != nil {
					progress(done, len(r.plugins), p.File, err)
				}
				mu.Unlock()
			}
		})
	}
	for _, p := range r.plugins {
		if ctx.Err() != nil {
			break
		}
		work <- p
	}
	close(work)
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(errs...)
}
