package reload

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Signal
		s.Send() // to nobody
		ctx, leave := context.WithCancel(t.Context())
		one, other := s.Subscribe(ctx), s.Subscribe(t.Context())
		require.Empty(t, one)

		s.Send()
		s.Send()
		<-one
		require.Empty(t, one, "one value for both")
		require.Len(t, other, 1)
		s.Send()
		<-one

		leave()
		_, open := <-one
		require.False(t, open)
		s.Send()
		<-other
		s.Close()
		s.Send()
		_, open = <-other
		require.False(t, open)
		_, open = <-s.Subscribe(t.Context())
		require.False(t, open)
		s.Close()

		_, open = <-new(Signal).Subscribe(ctx)
		require.False(t, open, "its context had ended")
	})
}

// TestSignalEnds: subscriptions end while the signal is sent and closed.
func TestSignalEnds(t *testing.T) {
	var s Signal
	var busy sync.WaitGroup
	for range 100 {
		ctx, leave := context.WithCancel(t.Context())
		changed := s.Subscribe(ctx)
		busy.Go(s.Send)
		busy.Go(leave)
		busy.Go(func() {
			for range changed {
			}
		})
	}
	busy.Go(s.Close)
	busy.Wait()
}
