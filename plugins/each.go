package plugins

import (
	"context"
	"runtime"
	"sync"
)

// each calls do for each number below n, on as many goroutines as there are
// processors. It starts no more once ctx is done, and waits for those it started.
func each(ctx context.Context, n int, do func(i int)) {
	var workers sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := 0; i < n && ctx.Err() == nil; i++ {
		slots <- struct{}{}
		workers.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	workers.Wait()
}
