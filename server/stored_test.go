package server

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/server/wire"
)

// A result that is too large for a model is stored as that of a run, if the caller can read
// it there. It is no news to the session, which has got it.
func TestStoredResult(t *testing.T) {
	large, small := `{"s":"`+strings.Repeat("x", MinAnswer)+`"}`, `{"s":""}`
	files := func() fstest.MapFS {
		p := plugintest.Plugin{Manifest: plugintest.Manifest("large"), Invoke: plugintest.Do().EchoLarge()}
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

func TestAnswerIsChecked(t *testing.T) {
	_, err := Open(t.Context(), Config{Answer: MinAnswer - 1})
	require.ErrorContains(t, err, "Answer: must be at least 8 KiB")
}
