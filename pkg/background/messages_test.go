package background

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// reads receives messages until one says "end", and returns all of them on one line.
func reads(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
	after, text := int64(0), fmt.Sprint(run.Attempt)
	for {
		found, err := Receive(ctx, after, time.Minute)
		if err != nil {
			return Outcome{}, err
		}
		for _, m := range found {
			text += " " + m.By + string(m.Data)
			after = m.ID
			if string(m.Data) == `"end"` {
				return Outcome{Summary: text}, nil
			}
		}
		if len(found) == 0 {
			return Outcome{Summary: text + " nothing"}, nil
		}
	}
}

func TestMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{Executor: reads})
		id := spawned(t, m, alice, "reader")
		box := m.Mailbox(alice, id)
		first := must(box.Send(t.Context(), "", json.RawMessage(`1`)))
		second := must(box.Send(t.Context(), "api", json.RawMessage(`2`)))
		require.Greater(t, second.ID, first.ID)
		synctest.Wait()
		require.Empty(t, must(box.List(t.Context())), "taken")

		time.Sleep(30 * time.Second)
		must(box.Send(t.Context(), "", json.RawMessage(`"end"`)))
		require.Equal(t, `1 1 api2 "end"`, wait(t, m, alice, id).Summary)
		_, err := box.Send(t.Context(), "", json.RawMessage(`3`))
		require.ErrorIs(t, err, ErrEnded)

		_, err = m.Mailbox(bob, id).Send(t.Context(), "", json.RawMessage(`3`))
		require.ErrorIs(t, err, engine.ErrNotFound)
		_, err = m.Mailbox(bob, id).List(t.Context())
		require.ErrorIs(t, err, engine.ErrNotFound)
		_, err = Receive(t.Context(), 0, 0)
		require.ErrorIs(t, err, output.ErrNoRun)

		idle := spawned(t, m, alice, "reader")
		require.Equal(t, "1 nothing", wait(t, m, alice, idle).Summary)
	})
}

// TestMessagesAreBounded: a full mailbox refuses messages, and accepts them again once
// its run has acknowledged some.
func TestMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		go1 := make(chan struct{})
		m := newManager(t, Config{Executor: func(ctx context.Context, run engine.Run, sink *output.Sink) (Outcome, error) {
			<-go1
			return reads(ctx, run, sink)
		}})
		box := m.Mailbox(alice, spawned(t, m, alice, "reader"))
		for range MaxMessages {
			must(box.Send(t.Context(), "", json.RawMessage(`1`)))
		}
		_, err := box.Send(t.Context(), "", json.RawMessage(`1`))
		require.ErrorIs(t, err, engine.ErrValueCount)
		_, err = box.Send(t.Context(), "", json.RawMessage(`"`+strings.Repeat("x", MaxMessage)+`"`))
		require.ErrorIs(t, err, ErrInvalid)
		_, err = box.Send(t.Context(), "", json.RawMessage(`{`))
		require.ErrorIs(t, err, ErrInvalid)
		close(go1)
		synctest.Wait()
		must(box.Send(t.Context(), "", json.RawMessage(`"end"`)))
		synctest.Wait()
	})
}

// TestMessagesAfterACrash: messages that the first attempt has not acknowledged are
// read again by the next one, in order.
func TestMessagesAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		m, err := New(t.Context(), Config{Engine: store, Readmit: yes, Executor: func(ctx context.Context, _ engine.Run, _ *output.Sink) (Outcome, error) {
			found := must(Receive(ctx, 0, time.Minute))
			must(Receive(ctx, found[0].ID, 0)) // takes the first one only
			<-ctx.Done()
			return Outcome{}, ctx.Err()
		}})
		require.NoError(t, err)
		id := spawned(t, m, alice, "reader")
		for _, text := range []string{`1`, `2`, `"end"`} {
			must(m.Mailbox(alice, id).Send(t.Context(), "", json.RawMessage(text)))
		}
		synctest.Wait()
		now, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, m.Close(now))

		m = newManager(t, Config{Engine: store, Readmit: yes, Executor: reads})
		require.Equal(t, `2 2 "end"`, wait(t, m, alice, id).Summary)
	})
}

// TestStopEndsAReceive: a run that waits for messages ends at once when it is stopped.
func TestStopEndsAReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Config{Executor: reads})
		id := spawned(t, m, alice, "reader")
		began := time.Now()
		must(m.Stop(t.Context(), alice, id, StopRequest{}))
		require.Zero(t, time.Since(began))
	})
}
