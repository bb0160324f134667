package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/wire"
)

// openListeners opens a service with listener, which answers with the messages that it
// has got after a minute at the most, and deaf, which does not say that it reads them.
func openListeners(t testing.TB) service {
	files := fstest.MapFS{}
	for _, name := range []string{"listener", "deaf"} {
		files[name+".wasm"] = &fstest.MapFile{Data: listener(name)}
	}
	return openFolder(t, Config{}, files)
}

func listener(name string) []byte {
	m := plugintest.Manifest(name)
	m.Tools[0].Hints.SupportsBackground, m.Tools[0].Hints.Messages = true, name != "deaf"
	return plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Use("messages.receive", `{"wait_ms":60000}`)}.Wasm()
}

// TestMessages: a message reaches the tool of a run that waits for it, and a call that
// is no run is denied them.
func TestMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := openListeners(t)
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
		require.ErrorContains(t, err, "deaf does not read messages")

		run, err = v.Spawn(t.Context(), SpawnRequest{Tool: "listener"})
		require.NoError(t, err)
		time.Sleep(time.Second)
		stopped, err := v.Stop(t.Context(), run.TaskID, "", wire.Stop{})
		require.NoError(t, err)
		require.False(t, stopped.Stopping, "it gave way at once")
	})
}

// TestAgentMessages: an agent sends messages with a tool of its own, and each refusal says
// what to do.
func TestAgentMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := openListeners(t)
		send := func(id, message string) string { return fmt.Sprintf(`{"task_id":%q,"message":%s}`, id, message) }
		id := s.spawn(alice, "listener", `{}`)
		time.Sleep(time.Second)

		dry, err := s.Call(t.Context(), Request{Session: alice, Tool: MessageBackground, Args: json.RawMessage(send(id, `1`)), DryRun: true})
		require.NoError(t, err)
		require.JSONEq(t, `{"task_id":"`+id+`","status":"running","dry_run":true}`, string(dry.Value))
		listed, err := s.Session(alice).Messages(t.Context(), id)
		require.NoError(t, err)
		require.Empty(t, listed.Messages, "a dry run sends nothing")

		require.Contains(t, s.refused(alice, MessageBackground, send(id+"x", `1`)), "active: "+id)
		require.Contains(t, s.refused(bob, MessageBackground, send(id, `1`)), "none is active", "another session does not see it")
		require.Contains(t, s.refused(alice, MessageBackground, `{"task_id":"`+id+`"}`), "message")
		require.Contains(t, s.refused(alice, MessageBackground, send(id, `"`+strings.Repeat("a", background.MaxMessage)+`"`)), "at most 16384 are allowed")
		deaf := s.spawn(alice, "deaf", `{}`)
		require.Contains(t, s.refused(alice, MessageBackground, send(deaf, `1`)), "deaf does not read messages: wait for the end of "+deaf)

		answer := s.agent(alice, MessageBackground, send(" "+id+"\n", `{"add":"b.txt"}`))
		require.Contains(t, []any{"running", "succeeded"}, answer["status"], "it may have read the message already")
		delete(answer, "status")
		require.Equal(t, object{"task_id": id, "message_id": 1.0}, answer)
		slip := s.spawn(alice, "listener", `{}`)
		s.agent(alice, MessageBackground, send(slip, `"{\"add\":1}"`))
		require.Equal(t, map[string]any{"add": 1.0}, s.check(alice, slip, "")["result"].(map[string]any)["messages"].([]any)[0].(map[string]any)["message"], "an object in a string")

		report := s.check(alice, id, "")
		require.Equal(t, 1.0, report["elapsed_seconds"], "it had the message at once")
		got := report["result"].(map[string]any)["messages"].([]any)[0].(map[string]any)
		require.Equal(t, map[string]any{"add": "b.txt"}, got["message"])
		require.NotContains(t, got, "by", "the sender is its agent")
		require.Equal(t, id+" has ended (succeeded) and takes no more messages: read its result, or run listener again", s.refused(alice, MessageBackground, send(id, `1`)))
	})
}

// TestFullMailbox: a full mailbox is a limit that says what to do, in a dry run too.
func TestFullMailbox(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := plugintest.Manifest("busy")
		m.Tools[0].Hints.SupportsBackground, m.Tools[0].Hints.Messages = true, true
		m.Needs.Clock = true
		s := openFolder(t, Config{Grants: map[string]plugins.Grant{"busy": {Clock: true}}}, fstest.MapFS{"busy.wasm": {Data: plugintest.Plugin{Manifest: m, Invoke: zoo()["sleeper"].Invoke}.Wasm()}})
		id := s.spawn(alice, "busy", `{}`)
		time.Sleep(time.Second)
		for range background.MaxMessages {
			s.agent(alice, MessageBackground, `{"task_id":"`+id+`","message":1}`)
		}
		for _, dry := range []bool{true, false} {
			r, err := s.Call(t.Context(), Request{Session: alice, Tool: MessageBackground, Args: json.RawMessage(`{"task_id":"` + id + `","message":1}`), DryRun: dry})
			require.NoError(t, err)
			require.Equal(t, "the mailbox of "+id+" is full: send the message again when its tool has read some of the others", r.Error, dry)
		}

		_, err := s.Reconfigure(t.Context(), func(c *Config) { c.Grants = nil })
		require.NoError(t, err)
		require.Contains(t, s.shownAgentTools(), MessageBackground, "its tool has lost its grant, and the run still reads messages")
		s.stop(alice, id, "")
		require.NotContains(t, s.shownAgentTools(), MessageBackground)
	})
}

// TestMessageToolIsOffered: models see message_background while a tool reads messages. A
// run whose tool was removed says so, and one that has ended says that.
func TestMessageToolIsOffered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		files := fstest.MapFS{"deaf.wasm": {Data: listener("deaf")}}
		s := openFolder(t, Config{}, files)
		offers := func() bool { _, shown := s.shownAgentTools()[MessageBackground]; return shown }
		require.False(t, offers(), "no tool reads messages")
		_, err := s.Call(t.Context(), Request{Session: alice, Tool: MessageBackground, Args: json.RawMessage(`{"task_id":"x","message":1}`)})
		require.ErrorIs(t, err, plugins.ErrNoTool)

		files["listener.wasm"] = &fstest.MapFile{Data: listener("listener"), ModTime: time.Now()}
		_, err = s.Reload(t.Context())
		require.NoError(t, err)
		require.True(t, offers())
		require.Contains(t, s.shownAgentTools()[MessageBackground].Description, "They are: listener.")

		id := s.spawn(alice, "listener", `{}`)
		time.Sleep(time.Second)
		synctest.Wait()
		delete(files, "listener.wasm")
		_, err = s.Reload(t.Context())
		require.NoError(t, err)
		require.False(t, offers())
		_, err = s.Session(alice).Send(t.Context(), id, "", json.RawMessage(`1`))
		require.ErrorContains(t, err, "listener was removed from this host while "+id+" ran")
		s.settled(alice, id)
		_, err = s.Session(alice).Send(t.Context(), id, "", json.RawMessage(`1`))
		require.ErrorIs(t, err, background.ErrEnded)
	})
}
