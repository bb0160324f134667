package server

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/wire"
)

// A result that is too large for a model is stored as that of a run, if the caller can read
// it there. It is no news to the session, which has got it.
func TestStoredResult(t *testing.T) {
	secret := `{"key":"` + strings.Repeat("k", MinAnswer) + `"}`
	large, small := `{"s":"`+strings.Repeat("x", MinAnswer)+`"}`, `{"s":""}`
	files := func() fstest.MapFS {
		m := plugintest.Manifest("large")
		m.Tools[0].InputSchema = json.RawMessage(`{"type":"object","properties":{"key":{"type":"string","writeOnly":true}}}`)
		p := plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().EchoLarge()}
		return fstest.MapFS{"large.wasm": {Data: p.Wasm()}}
	}
	for _, test := range []struct {
		name, args string
		cfg        Config
		change     func(*Request)
		stored     bool
	}{
		{name: "large", args: large, stored: true},
		{name: "large with a key", args: large, change: func(r *Request) { r.Key = "k" }, stored: true},
		{name: "small", args: small},
		{name: "within the limit", args: large, cfg: Config{Answer: 2 * MinAnswer}},
		{name: "nothing is parked", args: large, cfg: Config{Park: ParkNever}},
		{name: "a secret that the tool repeats", args: secret},
		{name: "no session", args: large, change: func(r *Request) { r.Session = "" }},
		{name: "nobody can read it", args: large, change: func(r *Request) { r.OnStored = nil }},
		{name: "no room for the run", args: large, cfg: Config{Runs: RunsConfig{RecordQuota: 1 << 10}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.cfg.Answer == 0 {
				test.cfg.Answer = MinAnswer
			}
			s := openFolder(t, test.cfg, files())
			var id string
			req := Request{Session: alice, Tool: "large", Args: json.RawMessage(test.args), OnStored: func(task string) { id = task }}
			if test.change != nil {
				test.change(&req)
			}
			r, err := s.Call(t.Context(), req)
			require.NoError(t, err)
			require.JSONEq(t, test.args, string(r.Value), "the program gets all of it")
			require.Empty(t, s.notices(alice))

			if !test.stored {
				require.Empty(t, id)
				return
			}
			file, err := s.Session(alice).Open(t.Context(), id, wire.ResultJSON)
			require.NoError(t, err)
			defer file.Close()
			var kept struct{ Result json.RawMessage }
			require.NoError(t, json.NewDecoder(file).Decode(&kept))
			require.JSONEq(t, test.args, string(kept.Result))
		})
	}
}

// resultsAway is an engine that cannot read a run.
type resultsAway struct{ *memory.Engine }

func (resultsAway) Get(context.Context, string) (engine.Run, error) {
	return engine.Run{}, engine.ErrUnavailable
}

// A caller gets a result that is in memory, also if the storage cannot be reached.
func TestLargeResultWhileTheStorageIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.Context(), Config{Engine: resultsAway{memory.New()}, Answer: MinAnswer, Tools: []gotool.Tool{{
			Name: "large", Description: "Returns much.", Handler: gotool.Handle(
				func(context.Context, *gotool.Call, struct{}) (string, error) {
					return strings.Repeat("x", MinAnswer), nil
				}),
		}}})
		require.NoError(t, err)
		defer s.Close(done())
		r, err := s.Call(t.Context(), Request{Session: alice, Tool: "large", OnStored: func(string) { t.Error("nobody can read it") }})
		require.NoError(t, err)
		require.Len(t, r.Value, MinAnswer+2)
	})
}

func TestAnswerIsChecked(t *testing.T) {
	_, err := Open(t.Context(), Config{Answer: MinAnswer - 1})
	require.ErrorContains(t, err, "Answer: must be at least 8 KiB")
}
