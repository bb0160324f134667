package background

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// A goroutine is reused, as many as the pool keeps, until it is closed.
func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool()
		for range 3 {
			p.run(func() {})
			synctest.Wait()
			require.Len(t, p.idle, 1)
		}

		var begun sync.WaitGroup
		hold := make(chan struct{})
		for range 2 * cap(p.idle) {
			begun.Add(1)
			p.run(func() { begun.Done(); <-hold })
		}
		begun.Wait()
		synctest.Wait()
		require.Empty(t, p.idle, "nobody waits for another's work")
		close(hold)
		synctest.Wait()
		require.Len(t, p.idle, cap(p.idle))

		p.run(runtime.Goexit)
		synctest.Wait()
		require.Len(t, p.idle, cap(p.idle)-1)

		p.close()
		p.close()
		p.all.Wait()
		require.Empty(t, p.idle)
		ran := false
		p.run(func() { ran = true })
		p.all.Wait()
		require.True(t, ran)
	})
}
