package server

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/server/wire"
)

// parkScript calls a script whose client leaves, and returns the run that it becomes.
func (s service) parkScript(text string) (id string) {
	s.t.Helper()
	_, err := s.Service.Call(s.t.Context(), Request{
		Session: alice, Tool: "exec", Args: code(text), AskLater: true, OnPark: func(run wire.Run) { id = run.TaskID },
		Ask: func(context.Context, abi.Questions) (abi.Answers, error) { return abi.Answers{}, ErrAskAgain },
	})
	require.NoError(s.t, err)
	require.NotEmpty(s.t, id)
	return id
}

// asks returns what a run of alice's asks, by its key.
func (s service) asks(id string) map[string]string {
	s.t.Helper()
	open, err := s.Session(alice).Questions(s.t.Context(), id)
	require.NoError(s.t, err)
	texts := map[string]string{}
	for key, q := range open {
		texts[key] = q.Message
	}
	return texts
}

// untilAsked waits until a run of alice's asks something.
func (s service) untilAsked(id string) {
	s.t.Helper()
	for len(s.asks(id)) == 0 {
		time.Sleep(time.Millisecond)
	}
}

// answers answers the only question of a run of alice's, and returns its key.
func (s service) answers(id, text string) string {
	s.t.Helper()
	keys := slices.Collect(maps.Keys(s.asks(id)))
	require.Len(s.t, keys, 1)
	content, _ := json.Marshal(map[string]string{"answer": text})
	require.NoError(s.t, s.Session(alice).Answer(s.t.Context(), id, map[string]abi.Answer{keys[0]: accepted(string(content))}))
	return keys[0]
}

// A slowEngine stores suspensions only once it may.
type slowEngine struct {
	*memory.Engine
	may chan struct{}
}

type slowWorker struct {
	engine.Worker
	may chan struct{}
}

type slowLease struct {
	engine.Lease
	may chan struct{}
}

func (e *slowEngine) Join(ctx context.Context, info engine.WorkerInfo) (engine.Worker, error) {
	w, err := e.Engine.Join(ctx, info)
	return &slowWorker{w, e.may}, err
}

func (w *slowWorker) Start(ctx context.Context, id string) (engine.Lease, error) {
	l, err := w.Worker.Start(ctx, id)
	return &slowLease{l, w.may}, err
}

func (w *slowWorker) Adopt(ctx context.Context, run engine.Run, permits engine.Permits) (engine.Lease, error) {
	l, err := w.Worker.Adopt(ctx, run, permits)
	return &slowLease{l, w.may}, err
}

func (l *slowLease) Suspend(ctx context.Context, s engine.Suspension) (engine.Run, error) {
	<-l.may
	return l.Lease.Suspend(ctx, s)
}

// TestAnsweredWhileSuspended: a question is open, and takes its answer, also in the moment in
// which its run gives up its instance.
func TestAnsweredWhileSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowEngine{memory.New(), make(chan struct{})}
		s := openScripts(t, Config{Engine: slow, ParkAfter: time.Minute})
		defer s.Close(done())
		s.questions.SharedEngine = false // as on a host of its own
		id := s.parkScript(`return await ask("Who?")`)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, wire.StatusRunning, s.run(id).Status, "it is not stored yet that it waits: %+v %s", s.run(id).Error, s.logs)
		s.answers(id, "Ana")

		close(slow.may)
		require.Equal(t, `"Ana"`, string(s.settled(alice, id).Result))
	})
}

// TestScriptAsks: a script that asks its user holds no instance until it is answered.
func TestScriptAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openScripts(t, Config{ParkAfter: time.Minute, Runs: RunsConfig{PerHost: 1}})
		defer s.Close(done())
		id := s.parkScript(`
			const first = await ask("Who?");
			const [second, slept] = await Promise.all([ask("Who else?"), sleep(3600e3).then(() => "slept")]);
			return [first, second, slept]`)
		synctest.Wait()
		time.Sleep(time.Second)
		require.Equal(t, wire.StatusWaiting, s.run(id).Status)
		other := s.spawnScript(`return 1`)
		synctest.Wait()
		require.Equal(t, wire.StatusSucceeded, s.run(other).Status, "it holds no place")

		require.Equal(t, []string{"Who?"}, slices.Collect(maps.Values(s.asks(id))))
		require.Equal(t, s.asks(id), s.asks(id), "the keys stay")
		require.Equal(t, []any{"Who?"}, s.check(alice, id, `,"wait_seconds":30`)["waiting_for_input"])
		require.Equal(t, []any{id}, s.agent(alice, CheckBackground, `{}`)["waiting_for_input"])
		require.ErrorIs(t, s.Session(bob).Answer(t.Context(), id, map[string]abi.Answer{}), engine.ErrNotFound)
		for key := range s.asks(id) {
			require.ErrorIs(t, s.Session(alice).Answer(t.Context(), id, map[string]abi.Answer{key: accepted(`{}`)}), abi.ErrAnswer)
		}
		key := s.answers(id, "Ana")
		synctest.Wait()
		time.Sleep(time.Minute)
		require.Equal(t, wire.StatusWaiting, s.run(id).Status, s.logs.String())
		require.Equal(t, []string{"Who else?"}, slices.Collect(maps.Values(s.asks(id))))
		require.NotContains(t, s.asks(id), key)

		require.NoError(t, s.Session(alice).Answer(t.Context(), id, map[string]abi.Answer{key: accepted(`{"answer":"Eve"}`)}), "it is closed")
		s.answers(id, "Bob")
		synctest.Wait()
		time.Sleep(time.Minute)
		require.Empty(t, s.asks(id))
		require.Equal(t, wire.StatusWaiting, s.run(id).Status, "it sleeps")
		time.Sleep(time.Hour)
		run := s.run(id)
		require.Equal(t, wire.StatusSucceeded, run.Status, "%+v", run.Error)
		require.Equal(t, `["Ana","Bob","slept"]`, string(run.Result))
	})
}

// TestScriptAsksAcrossRestarts: a question waits for its answer while no host runs, and is
// not asked again once it was answered.
func TestScriptAsksAcrossRestarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := Config{DataDir: t.TempDir(), ParkAfter: time.Millisecond}
		s := openScripts(t, cfg)
		id := s.parkScript(`console.log("one"); const a = await ask("Who?"); console.log("two"); await sleep(1); const b = await ask("Who?"); return [a, b]`)
		s.waits(id)
		asked := s.asks(id)
		require.NoError(t, s.Close(done()))

		s = openScripts(t, cfg)
		require.Equal(t, wire.StatusWaiting, s.run(id).Status)
		require.Equal(t, asked, s.asks(id))
		require.Equal(t, []any{id}, s.agent(alice, CheckBackground, `{}`)["waiting_for_input"])
		key := s.answers(id, "Ana")
		s.waits(id)
		require.Len(t, s.asks(id), 1)
		require.NotContains(t, s.asks(id), key, "the same question again has another key")
		require.NoError(t, s.Close(done()))

		s = openScripts(t, cfg)
		s.stop(alice, id, "")
		run := s.settled(alice, id)
		require.Equal(t, engine.StatusCanceled, run.Status)
		require.Empty(t, s.asks(id))
		require.Equal(t, "one\ntwo\n", s.artifact(alice, id, wire.OutputLog))

		id = s.parkScript(`const [a, b] = await Promise.all([ask("Who?"), sleep(1e8)]); return a`)
		s.waits(id)
		s.answers(id, "Ana")
		require.NoError(t, s.Close(done()))
		s = openScripts(t, cfg)
		s.waits(id)
		require.Empty(t, s.asks(id), "it was answered")
		require.NoError(t, s.Close(done()))
	})
}
