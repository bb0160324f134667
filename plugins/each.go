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
	work := make(chan int)
	for range min(runtime.GOMAXPROCS(0), n) {
		workers.Go(func() {
			for i := range work {
				do(i)
			}
		})
	}

	for i := 0; i < n && ctx.Err() == nil; i++ {
		work <- i
	}
	close(work)
	workers.Wait()
}
