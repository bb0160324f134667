package fair

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// BenchmarkSemaphore measures the time of one of a thousand calls that compete for 64
// slots and release them at once: with 1, 100 and 1,000 clients, next to a channel
// used as a first-come semaphore. The "-alone" cases have no competition.
func BenchmarkSemaphore(b *testing.B) {
	const calls, rounds = 1000, 10
	through := func(pass func(i int)) time.Duration {
		begin := time.Now()
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(func() {
				for range rounds {
					pass(i)
				}
			})
		}
		wg.Wait()
		return time.Since(begin) / calls / rounds
	}
	for _, clients := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			l, places := NewSemaphore(64, false), make(chan struct{}, 64)
			fair := func(i int) {
				who := names[i%clients]
				if w := l.enter(who); w != nil {
					<-w.granted
				}
				l.Release(who)
			}
			fifo := func(int) {
				places <- struct{}{}
				<-places
			}
			var took, base, alone, baseAlone time.Duration
			for b.Loop() {
				took += through(fair)
				base += through(fifo)
				begin := time.Now()
				for i := range calls {
					fair(i)
				}
				alone += time.Since(begin) / calls
				begin = time.Now()
				for i := range calls {
					fifo(i)
				}
				baseAlone += time.Since(begin) / calls
			}
			for name, d := range map[string]time.Duration{"fair": took, "channel": base, "fair-alone": alone, "channel-alone": baseAlone} {
				b.ReportMetric(float64(d.Nanoseconds())/float64(b.N), name+"-ns")
			}
			b.ReportMetric(0, "ns/op") // of all of them: says nothing
		})
	}
}

var names = func() (all [1000]string) {
	for i := range all {
		all[i] = fmt.Sprint("user-", i, "/")
	}
	return all
}()
