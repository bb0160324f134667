package plugins

import (
	"context"
	"runtime"
	"sync"
)

// each does something for each number below n, as many at a time as there are
// processors. It begins no more once ctx is done, and waits for those it began.
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
