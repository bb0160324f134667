package question

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/pkg/background/output"
)

const alice = "alice"

// A worker runs work whose questions its registry has.
type worker struct {
	*Registry
	t    *testing.T
	runs *background.Manager
	work func(ctx context.Context, ask Func) (any, error) // the work of all runs
}

// openWorker returns a worker on an engine that it may share with others.
func openWorker(t *testing.T, e engine.Engine, shared bool) *worker {
	t.Helper()
	w := &worker{Registry: &Registry{SharedEngine: shared, Log: slog.New(slog.DiscardHandler)}, t: t}
	w.Mailbox = func(session, run string) Mailbox { return w.runs.Mailbox(session, run) }
	execute := func(ctx context.Context, run engine.Run, _ *output.Sink) (background.Outcome, error) {
		value, err := w.work(ctx, w.ForRun(run))
		result, _ := json.Marshal(value)
		return background.Outcome{Result: result}, err
	}
	var err error
	w.runs, err = background.New(t.Context(), background.Config{Executor: execute, Engine: e})
	require.NoError(t, err)
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = w.runs.Close(now)
	})
	return w
}

// spawn starts a run of alice's, and waits until it can go no further by itself.
func (w *worker) spawn() engine.Run {
	w.t.Helper()
	started, err := w.runs.Spawn(w.t.Context(), alice, background.SpawnRequest{Tool: "asker", Args: json.RawMessage(`{}`)})
	require.NoError(w.t, err)
	settle()
	return w.run(started.Run.ID)
}

func (w *worker) run(id string) engine.Run {
	w.t.Helper()
	run, err := w.runs.Get(w.t.Context(), alice, id)
	require.NoError(w.t, err)
	return run
}

// key returns the key of the only open question of a run.
func (w *worker) key(run engine.Run) string {
	w.t.Helper()
	keys := slices.Collect(maps.Keys(w.Open(w.t.Context(), run)))
	require.Len(w.t, keys, 1)
	return keys[0]
}

// answer accepts the only open question of a run with a name.
func (w *worker) answer(run engine.Run, name string) {
	w.t.Helper()
	content, _ := json.Marshal(map[string]string{"name": name})
	require.NoError(w.t, w.Answer(w.t.Context(), run, map[string]abi.Answer{w.key(run): accepted(string(content))}))
	settle()
}

// settle waits until runs can go no further by themselves.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// names are the names in answers.
func names(given abi.Answers, err error) (string, error) {
	var content struct{ Name string }
	_ = json.Unmarshal(given.Answers["name"].Content, &content)
	return content.Name, err
}

// A run waits until its question has an answer that fits. What does not fit, or is for
// another question, leaves it open.
func TestAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openWorker(t, memory.New(), false)
		w.work = func(ctx context.Context, ask Func) (any, error) { return names(ask(ctx, asking("name"))) }
		run := w.spawn()
		require.Equal(t, []string{run.ID}, w.Runs(alice))
		require.Empty(t, w.Runs("bob"))

		key := w.key(run)
		require.ErrorIs(t, w.Answer(t.Context(), run, map[string]abi.Answer{key: accepted(`{"name":"A"}`)}), abi.ErrAnswer)
		require.NoError(t, w.Answer(t.Context(), run, map[string]abi.Answer{"name": accepted(`{"name":"Eve"}`)}))
		other := run
		other.Session = "bob"
		require.NoError(t, w.Answer(t.Context(), other, map[string]abi.Answer{key: accepted(`{"name":"Eve"}`)}))
		require.Equal(t, key, w.key(run), "it stays open")

		w.answer(run, "Ana")
		require.Equal(t, engine.StatusSucceeded, w.run(run.ID).Status)
		result, err := w.runs.Payload(t.Context(), alice, run.ID, engine.PartResult)
		require.NoError(t, err)
		require.Equal(t, `"Ana"`, string(result))
		require.Empty(t, w.Open(t.Context(), w.run(run.ID)))
		require.Empty(t, w.Runs(alice))
	})
}

// A run asks one round after the other, and no two rounds have the same keys.
func TestRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openWorker(t, memory.New(), false)
		w.work = func(ctx context.Context, ask Func) (any, error) {
			second := make(chan string)
			go func() {
				name, _ := names(ask(ctx, asking("name")))
				second <- name
			}()
			first, err := names(ask(ctx, asking("name")))
			return []string{first, <-second}, err
		}
		run := w.spawn()
		first := w.key(run)
		w.answer(run, "Ana")
		require.NotEqual(t, first, w.key(run))
		w.answer(run, "Ana")
		require.Equal(t, engine.StatusSucceeded, w.run(run.ID).Status)
	})
}

// An asker that waits for its turn gives up with its context.
func TestAskerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Registry{}
		a, run := NewAsker(r, 0), Run{alice, "bg_1"}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := a.Ask(ctx, run, asking("name"))
				ended <- err
			}()
		}
		synctest.Wait()
		open, _ := r.local(run)
		require.Len(t, open, 1)

		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.ErrorIs(t, <-ended, context.Canceled)
		open, _ = r.local(run)
		require.Empty(t, open)
	})
}

// Whoever waits for runs is woken when one of them asks, at once if it does already, and
// not by the questions of others.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openWorker(t, memory.New(), false)
		begin := make(chan struct{})
		w.work = func(ctx context.Context, ask Func) (any, error) {
			<-begin
			return names(ask(ctx, asking("name")))
		}
		run := w.spawn()
		asked, stop := w.Watch(t.Context(), []engine.Run{run, {Session: alice, ID: "bg_unknown"}})
		other, stopOther := w.Watch(t.Context(), []engine.Run{{Session: "bob", ID: run.ID}})
		synctest.Wait()
		require.False(t, closed(asked))

		close(begin)
		<-asked
		require.False(t, closed(other))
		stop()
		stopOther()
		require.Empty(t, w.watchers)

		asked, stop = w.Watch(t.Context(), []engine.Run{run})
		require.True(t, closed(asked))
		stop()
		w.answer(run, "Ana")
	})
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// What a run asks on one host is answered on another.
func TestHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memory.New()
		a, b := openWorker(t, shared, true), openWorker(t, shared, true)
		begin := make(chan struct{})
		a.work = func(ctx context.Context, ask Func) (any, error) {
			<-begin
			given, err := ask(ctx, abi.Questions{Questions: map[string]abi.Question{"name": who, "other": who}})
			return given.Answers["other"].Action, err
		}
		b.work = a.work
		run := a.spawn()
		asked, stop := b.Watch(t.Context(), []engine.Run{run})
		defer stop()
		close(begin)
		<-asked
		require.Equal(t, a.Open(t.Context(), run), b.Open(t.Context(), run))

		for key := range b.Open(t.Context(), run) { // one answer on each host
			require.NoError(t, a.Answer(t.Context(), run, map[string]abi.Answer{key: {Action: abi.AnswerDecline}}))
			require.NotContains(t, b.Open(t.Context(), run), key)
			a, b = b, a
		}
		time.Sleep(2 * PollInterval)
		synctest.Wait()
		require.Equal(t, engine.StatusSucceeded, b.run(run.ID).Status)
	})
}

// A box is a mailbox whose questions change while they are answered.
type box struct {
	all       []round
	conflicts int   // how often an answer comes too late
	err       error // of the answer after that
	answers   int
}

func (b *box) Question(context.Context) (json.RawMessage, int64, error) {
	data, err := json.Marshal(b.all)
	return data, 1, err
}

func (b *box) Answer(_ context.Context, data json.RawMessage, _ int64) error {
	if b.answers++; b.answers <= b.conflicts {
		return engine.ErrConflict
	}
	if b.err == nil {
		b.all = nil
		return json.Unmarshal(data, &b.all)
	}
	return b.err
}

// An answer to a suspended run is stored, also if its questions change meanwhile.
func TestAnswerStored(t *testing.T) {
	broken := errors.New("disk")
	for name, c := range map[string]struct {
		conflicts int
		err, want error
		answers   int
	}{
		"stored":      {0, nil, nil, 1},
		"in conflict": {2, nil, nil, 3},
		"too late":    {0, engine.ErrNotFound, nil, 1},
		"not stored":  {0, broken, broken, 1},
	} {
		t.Run(name, func(t *testing.T) {
			stored := newRound(asking("name"), 1)
			stored.Operation, stored.Given = 7, nil
			mail := &box{all: []round{stored}, conflicts: c.conflicts, err: c.err}
			r := &Registry{Mailbox: func(string, string) Mailbox { return mail }}
			run := engine.Run{Session: alice, ID: "bg_1", Status: engine.StatusWaiting}
			require.Contains(t, r.Open(t.Context(), run), "name.1")

			require.ErrorIs(t, r.Answer(t.Context(), run, map[string]abi.Answer{"name.1": {Action: abi.AnswerDecline}}), c.want)
			require.Equal(t, c.answers, mail.answers)
			if c.err == nil {
				require.Empty(t, r.Open(t.Context(), run))
				require.Equal(t, abi.AnswerDecline, mail.all[0].Given["name.1"].Action)
			}
		})
	}
}
