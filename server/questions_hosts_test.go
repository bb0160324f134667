package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
)

// deaf is an engine whose events are all lost.
type deaf struct{ engine.Engine }

// Watch implements [engine.Engine].
func (deaf) Watch(ctx context.Context, _ string) <-chan engine.Event {
	lost := make(chan engine.Event)
	go func() {
		<-ctx.Done()
		close(lost)
	}()
	return lost
}

// What a run asks at one host is shown and answered at another, with hints and without.
func TestQuestionsOverHosts(t *testing.T) {
	for name, shared := range map[string]engine.Engine{"hints": memory.New(), "no hints": deaf{memory.New()}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := open(t, Config{Engine: shared, ParkAfter: time.Second}, "asker", "sleeper")
				b := open(t, Config{Engine: shared, ParkAfter: time.Second}, "asker", "sleeper")
				id, asked := a.parkAsking(alice), time.Now()

				report := b.check(alice, id, `,"wait_seconds":540`)
				require.Equal(t, "running", report["status"])
				require.Equal(t, []any{"Who are you?"}, report["waiting_for_input"])
				require.Zero(t, time.Since(asked))
				require.Equal(t, []any{id}, b.agent(alice, CheckBackground, `{}`)["waiting_for_input"])
				open, err := b.Session(bob).Questions(t.Context(), id)
				require.ErrorIs(t, err, engine.ErrNotFound, "%v", open)
				require.ErrorIs(t, b.Session(alice).Answer(t.Context(), id, map[string]abi.Answer{"name.1": accepted(`{}`)}), abi.ErrAnswer)

				answered := time.Now()
				require.NoError(t, b.Session(alice).Answer(t.Context(), id, map[string]abi.Answer{"name.1": accepted(`{"name":"Ana"}`)}))
				again, err := b.Session(alice).Questions(t.Context(), id)
				require.NoError(t, err)
				require.Empty(t, again, "what was answered is not asked again")

				report = b.check(alice, id, `,"wait_seconds":540`)
				require.Equal(t, "succeeded", report["status"])
				require.Contains(t, report["result"], "answers")
				require.Less(t, time.Since(answered), 3*time.Second)
			})
		})
	}
}

// A check that waits at one host is woken when the run asks at another.
func TestCheckIsWokenByQuestionsOverHosts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shared := deaf{memory.New()}
		a := open(t, Config{Engine: shared, ParkAfter: time.Second}, "asker", "sleeper")
		b := open(t, Config{Engine: shared, ParkAfter: time.Second}, "asker", "sleeper")
		sleeper := b.spawn(alice, "sleeper", `{}`)
		asks := a.parkAsking(alice)
		began := time.Now()
		report := b.agent(alice, CheckBackground, `{"task_ids":["`+sleeper+`","`+asks+`"],"wait_seconds":540,"until":"all"}`)
		require.Less(t, time.Since(began), 2*time.Second, "%v", report)

		require.NoError(t, a.Session(alice).Answer(t.Context(), asks, map[string]abi.Answer{"name.1": {Action: abi.AnswerDecline}}))
		synctest.Wait() // until it is stored
		require.Equal(t, "succeeded", b.check(alice, asks, `,"wait_seconds":540`)["status"], "answered where it asks")
	})
}
