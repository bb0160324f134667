package postgres

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Two writes of one run are in two transactions: in one, the second would not see what the
// first wrote.
func TestGroupHasOneWriteARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made [][]string
		begin := make(chan struct{})
		g := &group{most: 1, bytes: groupBytes, together: func(all []*joint) {
			var runs []string
			for _, j := range all {
				runs = append(runs, j.run)
			}
			made = append(made, runs)
			<-begin
		}}
		var writers sync.WaitGroup
		for _, run := range []string{"first", "a", "", "a", "b", "", "a", "b"} {
			writers.Go(func() { _ = g.share(&joint{ctx: t.Context(), run: run}) })
			synctest.Wait()
		}

		close(begin)
		writers.Wait()
		require.Equal(t, [][]string{{"first"}, {"a", "", "b", ""}, {"a", "b"}, {"a"}}, made)
	})
}

// After a failure that changed nothing, each write is made alone, and does not hold up the
// others.
func TestGroupFallsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := make(chan struct{})
		g := &group{most: 1, bytes: groupBytes, together: func(all []*joint) {
			<-begin
			for _, j := range all {
				j.apart = true
			}
		}}
		var writers sync.WaitGroup
		ended := map[string]time.Duration{}
		var mu sync.Mutex
		for run, takes := range map[string]time.Duration{"a": 3 * time.Second, "b": time.Second, "c": 2 * time.Second} {
			writers.Go(func() {
				began := time.Now()
				_ = g.share(&joint{ctx: t.Context(), run: run, alone: func() error { time.Sleep(takes); return nil }})
				mu.Lock()
				defer mu.Unlock()
				ended[run] = time.Since(began)
			})
		}
		synctest.Wait()
		close(begin)
		writers.Wait()
		require.Equal(t, map[string]time.Duration{"a": 3 * time.Second, "b": time.Second, "c": 2 * time.Second}, ended)
	})
}
