package background

import (
	"bytes"
	"context"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/output"
)

// Work has the profiler labels of its caller, not those of work that its goroutine did
// before.
func TestPooledLabels(t *testing.T) {
	m := newManager(t, Config{})
	for _, user := range []string{"alice", "bob", "alice"} {
		pprof.Do(t.Context(), pprof.Labels("pooled", user), func(ctx context.Context) {
			var profile bytes.Buffer
			_, err := m.Run(ctx, alice, RunRequest{SpawnRequest: SpawnRequest{Tool: "tool"}, Work: func(context.Context, *output.Sink) (Outcome, error) {
				return Outcome{}, pprof.Lookup("goroutine").WriteTo(&profile, 1)
			}})
			require.NoError(t, err)
			require.Equal(t, 2, strings.Count(profile.String(), `"pooled":"`+user+`"`), "of the caller and of the work:\n%s", profile.String())
		})
	}
}

// Goroutines are reused, up to the number that the pool keeps, until the pool is
// closed.
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
