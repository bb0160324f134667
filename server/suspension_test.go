package server

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/wire"
)

// A ledger has tools of the program that must not be called twice.
type ledger struct {
	mu      sync.Mutex
	entries []string
}

type entry struct {
	Text  string `json:"text"`
	Sleep int    `json:"sleep,omitempty"` // seconds
}

// tools are put, which writes an entry, and its kinds.
func (l *ledger) tools() []gotool.Tool {
	put := gotool.Handle(func(ctx context.Context, _ *gotool.Call, in entry) (string, error) {
		l.mu.Lock()
		l.entries = append(l.entries, in.Text)
		n := len(l.entries)
		l.mu.Unlock()
		select {
		case <-time.After(time.Duration(in.Sleep) * time.Second):
		case <-ctx.Done():
			return "", ctx.Err()
		}
		return fmt.Sprintf("%s is %d", in.Text, n), nil
	})
	return []gotool.Tool{
		{Name: "put", Description: "Writes an entry.", Handler: put},
		{Name: "approved", Description: "Writes an entry that was approved.", Approval: abi.ApprovalRequired, Handler: put},
	}
}

func (l *ledger) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.entries...)
}

// spawnScript spawns a script.
func (s service) spawnScript(text string) string {
	s.t.Helper()
	run, err := s.Session(alice).Spawn(s.t.Context(), SpawnRequest{Tool: "exec", Args: code(text)})
	require.NoError(s.t, err)
	return run.TaskID
}

// run is a run of alice's.
func (s service) run(id string) wire.Run {
	s.t.Helper()
	found, err := s.Session(alice).Check(s.t.Context(), CheckRequest{IDs: []string{id}})
	require.NoError(s.t, err)
	return found.Runs[0]
}

// TestScriptRunsWait: a run that waits has no instance, and continues when its time has come.
func TestScriptRunsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openScripts(t, Config{})
		defer s.Close(done())
		id := s.spawnScript(`const a = []; for (let i = 0; i < 3; i++) { console.log("round", i); await sleep(3600e3); a.push(i) } return a`)
		time.Sleep(time.Minute)
		run := s.run(id)
		require.Equal(t, wire.StatusWaiting, run.Status)
		require.Empty(t, s.runs.Unfinished(), "it holds no place")
		fuel := run.Cost.Fuel
		require.Positive(t, fuel)

		time.Sleep(3 * time.Hour)
		run = s.run(id)
		require.Equal(t, wire.StatusSucceeded, run.Status, "%+v", run.Error)
		require.Equal(t, `[0,1,2]`, string(run.Result))
		require.Equal(t, "round 0\nround 1\nround 2\n", s.artifact(alice, id, wire.OutputLog))
		require.Less(t, run.Cost.Fuel, 2*fuel, "no fuel counts twice")
		require.Equal(t, 1, run.Attempt)
	})
}

// TestScriptsQueueInTheirState: operations beyond those that the host takes wait in the
// script's memory, and so do their results, while it has no instance.
func TestScriptsQueueInTheirState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		s := openScripts(t, Config{Tools: l.tools()})
		defer s.Close(done())
		id := s.spawnScript(`
			const all = Array.from({length: 70}, (_, i) => tools.put({text: "t" + i, sleep: 60}));
			await Promise.all(Array.from({length: 10}, () => sleep(3600e3)));
			(await Promise.all(all)).length`)
		time.Sleep(10 * time.Second)
		require.Equal(t, wire.StatusWaiting, s.run(id).Status)
		require.Less(t, len(l.all()), 64)

		time.Sleep(2 * time.Hour)
		run := s.run(id)
		require.Equal(t, wire.StatusSucceeded, run.Status, "%+v", run.Error)
		require.Equal(t, `70`, string(run.Result))
		require.Len(t, l.all(), 70)
	})
}

// TestScriptTimersWait: timers and sleeps of a run without an instance end when they should,
// in their order, and so do those that begin in between.
func TestScriptTimersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openScripts(t, Config{})
		defer s.Close(done())
		id := s.spawnScript(`
			const begun = Date.now(), seen = [];
			const minutes = () => (Date.now() - begun) / 60e3, see = (name) => seen.push(name + " " + minutes());
			const every = setInterval(() => see("every"), 25 * 60e3);
			const never = setTimeout(() => see("never"), 40 * 60e3);
			setTimeout(() => { clearTimeout(never); setTimeout(() => see("inner"), 5 * 60e3) }, 30 * 60e3);
			await Promise.all([sleep(120 * 60e3).then(() => see("b")), sleep(60 * 60e3).then(() => see("a"))]);
			clearInterval(every);
			await sleep(60e3);
			return [minutes(), ...seen]`)
		for range 3 {
			time.Sleep(32 * time.Minute)
			require.Equal(t, wire.StatusWaiting, s.run(id).Status)
			require.Empty(t, s.runs.Unfinished(), "it holds no place")
		}

		time.Sleep(time.Hour)
		run := s.run(id)
		require.Equal(t, wire.StatusSucceeded, run.Status, "%+v", run.Error)
		require.Equal(t, `[121,"every 25","inner 35","every 50","a 60","every 75","every 100","b 120"]`, string(run.Result))
	})
}

// TestScriptCallsOnce: what must not be called twice is a run of its own, which the script
// waits for without an instance.
func TestScriptCallsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		s := openScripts(t, Config{Tools: l.tools()})
		defer s.Close(done())
		id := s.spawnScript(`
			const a = await tools.put({text: "a"});
			const [b, c, n] = await Promise.all([tools.put({text: "b", sleep: 60}), tools.put({text: "c", sleep: 120}), tools.count({text: "x y"})]);
			return [a, b, c, n.words]`)
		time.Sleep(10 * time.Second)
		require.Equal(t, wire.StatusWaiting, s.run(id).Status)
		child := s.run(background.ChildID(id, 2))
		require.Equal(t, wire.StatusRunning, child.Status)
		require.Equal(t, id, child.Parent)
		require.Equal(t, "exec", child.By)

		time.Sleep(60 * time.Second)
		require.Equal(t, wire.StatusWaiting, s.run(id).Status, "for the other one")
		time.Sleep(60 * time.Second)
		run := s.run(id)
		require.Equal(t, wire.StatusSucceeded, run.Status, "%+v", run.Error)
		var result []any
		require.NoError(t, json.Unmarshal(run.Result, &result))
		require.Equal(t, []any{"a is 1", 2.}, []any{result[0], result[3]})
		require.ElementsMatch(t, []string{"a", "b", "c"}, l.all())
		notices, err := s.Session(alice).Notices(t.Context(), 0)
		require.NoError(t, err)
		require.Len(t, notices.Notices, 1, "of the script only")
	})
}

// TestScriptStops: a stop ends a run that waits, and the calls that it has made.
func TestScriptStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		s := openScripts(t, Config{Tools: l.tools(), Limits: Limits{Fuel: 100_000_000}})
		defer s.Close(done())
		waiting := s.spawnScript(`await tools.put({text: "a", sleep: 1e6})`)
		limited := s.spawnScript(`const c = tools.put({text: "c", sleep: 1e6}); await sleep(1000); for (;;);`)
		time.Sleep(10 * time.Second)
		require.Equal(t, wire.StatusWaiting, s.run(waiting).Status)
		_, err := s.Session(alice).Stop(t.Context(), waiting, "", wire.Stop{})
		require.NoError(t, err)
		require.Equal(t, wire.StatusCanceled, s.run(waiting).Status)
		require.Equal(t, wire.StatusFailed, s.run(limited).Status)
		for _, id := range []string{waiting, limited} {
			require.Equal(t, wire.StatusCanceled, s.run(background.ChildID(id, 1)).Status, id)
		}
	})
}

// TestScriptApproval: a script may wait for days until a person has approved a call.
func TestScriptApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		s := openScripts(t, Config{Tools: l.tools(), Approvals: ApprovalPolicy{Ask: true}})
		defer s.Close(done())
		id := s.spawnScript(`try { return await tools.approved({text: "a"}) } catch (e) { return [e.kind, e.message] }`)
		other := s.spawnScript(`try { return await tools.approved({text: "b"}) } catch (e) { return [e.kind, e.message] }`)
		time.Sleep(24 * time.Hour)
		require.Equal(t, wire.StatusWaiting, s.run(id).Status)
		list, err := s.Approvals().List(t.Context(), "", 0)
		require.NoError(t, err)
		require.Len(t, list.Approvals, 2)
		for _, one := range list.Approvals {
			require.Equal(t, "exec", one.By)
			_, err = s.Approvals().Decide(t.Context(), one.TaskID, "operator", wire.Decide{Approve: one.TaskID == background.ChildID(id, 1)})
			require.NoError(t, err)
		}
		time.Sleep(time.Minute)
		require.Equal(t, `"a is 1"`, string(s.run(id).Result))
		require.JSONEq(t, `["denied", "not approved"]`, string(s.run(other).Result))
		require.Equal(t, []string{"a"}, l.all())
	})
}

// TestScriptParks: a call that is parked waits as a run does.
func TestScriptParks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		s := openScripts(t, Config{Tools: l.tools(), ParkAfter: time.Minute})
		defer s.Close(done())
		var id string
		_, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: "exec", OnPark: func(run wire.Run) { id = run.TaskID },
			Args: code(`const a = await tools.put({text: "a"}); await sleep(100e3); const b = await tools.put({text: "b", sleep: 200}); await sleep(1000e3); return [a, b]`)})
		require.NoError(t, err)
		require.NotEmpty(t, id)
		require.Equal(t, wire.StatusRunning, s.run(id).Status)
		time.Sleep(100 * time.Second)
		require.Equal(t, wire.StatusWaiting, s.run(id).Status)
		time.Sleep(2000 * time.Second)
		run := s.run(id)
		require.Equal(t, wire.StatusSucceeded, run.Status, "%+v", run.Error)
		require.Equal(t, `["a is 1","b is 2"]`, string(run.Result))
	})
}

// TestScriptShutdown: a host that shuts down keeps the state of runs that wait.
func TestScriptShutdown(t *testing.T) {
	var l ledger
	cfg := Config{Tools: l.tools(), DataDir: t.TempDir()}
	s := openScripts(t, cfg)
	id := s.spawnScript(`console.log("one"); const a = await tools.put({text: "a"}); console.log("two"); await sleep(400); const b = await tools.put({text: "b"}); return [a, b]`)
	s.said(alice, id, "one\ntwo\n")
	require.NoError(t, s.Close(done()))

	s = openScripts(t, cfg)
	run := s.settled(alice, id)
	require.Equal(t, `["a is 1","b is 2"]`, string(run.Result), "%+v", run.Error)
	require.Equal(t, "one\ntwo\n", s.artifact(alice, id, wire.OutputLog))
	require.Equal(t, []string{"a", "b"}, l.all())
	require.NoError(t, s.Close(done()))
}

// TestScriptWaitsInAFullHost: a run whose place others need gives it up as soon as it waits.
func TestScriptWaitsInAFullHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openScripts(t, Config{Runs: RunsConfig{PerHost: 1}})
		for range 3 {
			id := s.spawnScript(`await sleep(3600e3)`)
			synctest.Wait()
			require.Equal(t, wire.StatusWaiting, s.run(id).Status)
		}
	})
}
