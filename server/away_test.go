package server

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/wire"
)

// childAway is an engine whose storage is away, as far as reading children is concerned.
type childAway struct {
	*memory.Engine
	away atomic.Bool
}

func (e *childAway) Get(ctx context.Context, id string) (engine.Run, error) {
	if strings.HasSuffix(id, "-1") && e.away.Load() {
		return engine.Run{}, engine.ErrUnavailable
	}
	return e.Engine.Get(ctx, id)
}

// TestAwaitWhileTheStorageIsAway: that a child cannot be read for a moment is not its end.
func TestAwaitWhileTheStorageIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		e := &childAway{Engine: memory.New()}
		e.away.Store(true)
		s := openScripts(t, Config{Engine: e, Tools: l.tools()})
		defer s.Close(done())
		id := s.spawnScript(`try { return await tools.put({text: "a"}) } catch (e) { return "failed: " + e.kind + ": " + e.message }`)
		time.Sleep(5 * time.Second)
		e.away.Store(false)
		time.Sleep(time.Minute)
		run := s.run(id)
		require.Equal(t, []string{"a"}, l.all())
		require.NotContains(t, string(run.Result), "failed")
	})
}

// payloadAway is an engine that cannot read the result of a child once.
type payloadAway struct {
	*memory.Engine
	away atomic.Bool
}

func (e *payloadAway) Payload(ctx context.Context, id string, part engine.Part) (json.RawMessage, error) {
	if strings.HasSuffix(id, "-1") && part == engine.PartResult && e.away.CompareAndSwap(true, false) {
		return nil, engine.ErrUnavailable
	}
	return e.Engine.Payload(ctx, id, part)
}

// TestResultWhileTheStorageIsAway: a script that does what an error says does nothing twice.
func TestResultWhileTheStorageIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		e := &payloadAway{Engine: memory.New()}
		e.away.Store(true)
		s := openScripts(t, Config{Engine: e, Tools: l.tools()})
		defer s.Close(done())
		id := s.spawnScript(`for (let i = 0; i < 3; i++) try { return await tools.put({text: "a"}) } catch (e) { console.log(e.kind, e.message); await sleep(5000) }`)
		time.Sleep(time.Minute)
		require.EqualValues(t, engine.StatusSucceeded, s.run(id).Status, s.artifact(alice, id, wire.OutputLog))
		require.Equal(t, []string{"a"}, l.all())
	})
}

// TestSecretsOfInnerCalls: a run that calls a tool with secret arguments has no state from
// then on, which would have them.
func TestSecretsOfInnerCalls(t *testing.T) {
	type login struct {
		Key string `json:"key" secret:"true"`
	}
	for name, hints := range map[string]abi.Hints{"unsafe": {}, "readonly": {Readonly: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := gotool.Handle(func(context.Context, *gotool.Call, login) (string, error) {
					time.Sleep(time.Minute)
					return "in", nil
				})
				e := memory.New()
				s := openScripts(t, Config{Engine: e, Tools: []gotool.Tool{{Name: "login", Description: "For tests.", Hints: hints, Handler: slow}}})
				defer s.Close(done())
				id := s.spawnScript(`await tools.login({key: "hunter2"}); await sleep(60000); return 1`)
				for _, at := range []time.Duration{30 * time.Second, time.Minute} {
					time.Sleep(at)
					run, err := e.Get(t.Context(), id)
					require.NoError(t, err)
					require.Zero(t, run.StateSize)
				}
				time.Sleep(time.Minute)
				require.EqualValues(t, engine.StatusSucceeded, s.run(id).Status)
			})
		})
	}
}
