package server

import (
	"encoding/json"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/server/wire"
)

// TestMessages: a message reaches the tool of a run that waits for it, and a call that
// is no run is denied them.
func TestMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		files := fstest.MapFS{}
		for name, reads := range map[string]bool{"listener": true, "deaf": false} {
			m := plugintest.Manifest(name)
			m.Tools[0].Hints.SupportsBackground, m.Tools[0].Hints.Messages = true, reads
			files[name+".wasm"] = &fstest.MapFile{Data: plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Use("messages.receive", `{"wait_ms":60000}`)}.Wasm()}
		}
		s := openFolder(t, Config{}, files)
		v := s.Session(alice)

		run, err := v.Spawn(t.Context(), SpawnRequest{Tool: "listener"})
		require.NoError(t, err)
		time.Sleep(30 * time.Second)
		sent, err := v.Send(t.Context(), run.TaskID, "ana", json.RawMessage(`{"skip":"b.txt"}`))
		require.NoError(t, err)
		ended := s.settled(alice, run.TaskID)
		require.Equal(t, wire.StatusSucceeded, wire.Status(ended.Status))
		require.Equal(t, 30*time.Second, ended.Elapsed(time.Now()), "it had the message at once")
		var got struct {
			Messages []struct {
				ID      int64           `json:"id"`
				By      string          `json:"by"`
				Message json.RawMessage `json:"message"`
			} `json:"messages"`
		}
		require.NoError(t, json.Unmarshal(ended.Result, &got))
		require.Len(t, got.Messages, 1)
		require.Equal(t, sent.ID, got.Messages[0].ID)
		require.Equal(t, "ana", got.Messages[0].By)
		require.JSONEq(t, `{"skip":"b.txt"}`, string(got.Messages[0].Message))

		var f abi.CallFailure
		require.NoError(t, json.Unmarshal(s.call(alice, "listener", `{}`).Value, &f))
		require.Equal(t, "denied", f.Code)

		run, err = v.Spawn(t.Context(), SpawnRequest{Tool: "deaf"})
		require.NoError(t, err)
		_, err = v.Send(t.Context(), run.TaskID, "", json.RawMessage(`1`))
		require.Equal(t, wire.CodeUnsupported, ReasonOf(err).Code)
		require.EqualError(t, err, "deaf does not read messages")

		run, err = v.Spawn(t.Context(), SpawnRequest{Tool: "listener"})
		require.NoError(t, err)
		time.Sleep(time.Second)
		stopped, err := v.Stop(t.Context(), run.TaskID, "", wire.Stop{})
		require.NoError(t, err)
		require.False(t, stopped.Stopping, "it gave way at once")
	})
}
