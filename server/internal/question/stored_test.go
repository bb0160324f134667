package question

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
)

// leave asks as the operation 7, until the context ends with that cause. It returns the
// operation whose questions are stored then.
func leave(ctx context.Context, ask Func, cause error) int32 {
	var open atomic.Int32
	ctx, cancel := context.WithCancelCause(WithOperation(ctx, 7, &open))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = ask(ctx, asking("name"))
	}()
	time.Sleep(time.Millisecond) // until it waits for the answer
	cancel(cause)
	<-ended
	return open.Load()
}

// step lets a run go on, until it can go no further.
func step(t *testing.T, next chan<- struct{}) {
	t.Helper()
	select {
	case next <- struct{}{}:
		settle()
	case <-time.After(time.Minute):
		require.Fail(t, "the run has ended")
	}
}

// A run that is suspended while it asks leaves its questions. When it continues, it asks
// them again with the keys that they had, or takes the answer that came meanwhile.
func TestSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openWorker(t, memory.New(), false)
		next := make(chan struct{})
		w.work = func(ctx context.Context, ask Func) (any, error) {
			var open atomic.Int32
			if got := leave(ctx, ask, errors.New("suspended")); got != 7 {
				return nil, errors.New("its questions are not stored")
			}
			<-next
			if got := leave(ctx, ask, errors.New("suspended again")); got != 7 {
				return nil, errors.New("its questions are not stored again")
			}
			<-next
			open.Store(7)
			name, err := names(ask(WithOperation(ctx, 7, &open), asking("name")))
			if open.Load() != 0 {
				err = errors.New("its questions count as open")
			}
			return name, err
		}
		run := w.spawn()
		key := w.key(run)
		step(t, next)
		require.Equal(t, key, w.key(run))

		w.answer(run, "Ana")
		require.Empty(t, w.Open(t.Context(), run))
		step(t, next)
		run = w.run(run.ID)
		require.Nil(t, run.Error, "%+v", run.Error)
		require.True(t, run.Status.Terminal())
	})
}

// Questions of an operation that was abandoned are not stored, and those of a run that
// starts over are forgotten.
func TestWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openWorker(t, memory.New(), false)
		next := make(chan struct{})
		w.work = func(ctx context.Context, ask Func) (any, error) {
			if leave(ctx, ask, host.ErrWithdrawn) != 0 || leave(ctx, ask, context.DeadlineExceeded) != 0 {
				return nil, errors.New("its questions are stored")
			}
			<-next
			leave(ctx, ask, errors.New("suspended"))
			<-next
			err := Forget(ctx)
			<-next
			return nil, err
		}
		run := w.spawn()
		require.Empty(t, w.Open(t.Context(), run))
		step(t, next)
		require.Len(t, w.Open(t.Context(), run), 1)
		step(t, next)
		require.Empty(t, w.Open(t.Context(), run))
		step(t, next)
		require.Nil(t, w.run(run.ID).Error)
	})
}

// A damaged record of questions is an error, and no answer.
func TestDamaged(t *testing.T) {
	_, _, err := readRounds(t.Context(), text("{"))
	require.Error(t, err)
	require.Error(t, answerStored(t.Context(), text("{"), 0, map[string]abi.Answer{"name.1": {Action: abi.AnswerDecline}}))
	all, _, err := readRounds(t.Context(), text(""))
	require.NoError(t, err)
	require.Empty(t, all)
}

// A text is a mailbox with that text.
type text string

func (m text) Question(context.Context) (json.RawMessage, int64, error) {
	if m == "" {
		return nil, 0, nil
	}
	return json.RawMessage(m), 1, nil
}

func (m text) Answer(context.Context, json.RawMessage, int64) error { panic("it was answered") }
