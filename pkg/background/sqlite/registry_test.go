package sqlite

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// Each active run is in the queue or holds a permit, whatever is under way when another worker
// joins.
func TestRegistryHasEachRunOnce(t *testing.T) {
	e := opened(t, t.TempDir())
	for round := range 40 {
		var all, begun sync.WaitGroup
		begun.Add(8)
		w := e.worker
		for i := range 8 {
			id := fmt.Sprintf("bg_%d_%d", round, i)
			submitted(t, e, id)
			all.Go(func() {
				begun.Done()
				l, err := w.Start(t.Context(), id)
				if err == nil && i%2 == 0 {
					_ = w.Requeue(t.Context(), id, l.Run().Attempt)
				}
			})
		}
		begun.Wait()
		for range 5 {
			e.limit(t, engine.Quota{})
		}
		all.Wait()

		for id, found := range places(e) {
			require.Len(t, found, 1, "round %d: %s is in %v", round, id, found)
		}
	}
}

// places returns where active runs are.
func places(e *tester) map[string][]string {
	g := e.active
	g.mu.Lock()
	defer g.mu.Unlock()
	found := map[string][]string{}
	for id, a := range g.runs {
		found[id] = nil
		if g.holders[id] == a {
			found[id] = append(found[id], "holders")
		}
	}
	for _, a := range g.queue {
		found[a.run.ID] = append(found[a.run.ID], "waiting")
	}
	return found
}
