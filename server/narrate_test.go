package server

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/wire"
)

// What a tool says of itself, and the sentences of its manifest, are in the record of
// its run. Secrets are not.
func TestRunSpeaks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "teller", "grumbler")
		id := s.spawn(alice, "teller", `{"n":7,"deep":{"code":"hunter2"}}`)
		synctest.Wait()
		run, err := s.Session(alice).Run(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "Telling 7 and {}", run.Narration)
		require.Equal(t, "reading a.txt", run.Detail)
		require.Equal(t, &wire.Progress{Done: 1, Total: 2, Unit: "files"}, run.Progress)
		report := s.check(alice, id, `,"wait_seconds":0`)
		require.Equal(t, "reading a.txt", report["detail"])
		require.Equal(t, map[string]any{"done": 1.0, "total": 2.0, "unit": "files"}, report["progress"])
		require.NotContains(t, report, "narration", "it is for people")

		time.Sleep(15 * time.Second)
		require.Equal(t, "writing", s.check(alice, id, `,"wait_seconds":0`)["detail"])
		time.Sleep(10 * time.Second)
		run, err = s.Session(alice).Run(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, wire.StatusSucceeded, run.Status)
		require.Equal(t, "Told 7", run.Narration)
		require.Equal(t, "Read 2 files.", run.Summary)

		failed := s.spawn(alice, "grumbler", `{"n":1}`)
		time.Sleep(11 * time.Second)
		run, err = s.Session(alice).Run(t.Context(), failed)
		require.NoError(t, err)
		require.Equal(t, "Could not tell 1", run.Narration)
		require.Equal(t, "Half of it is there.", run.Summary)

		stopped := s.spawn(alice, "grumbler", `{"n":2}`)
		synctest.Wait()
		s.stop(alice, stopped, "")
		run, err = s.Session(alice).Run(t.Context(), stopped)
		require.NoError(t, err)
		require.Equal(t, wire.StatusCanceled, run.Status)
		require.Equal(t, "Telling 2 and …", run.Narration, "neither finished nor failed")
	})
}

// Whoever waits for a call follows the same, in the caller's language.
func TestCallSpeaks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{Park: ParkNever}, "teller")
		var said []string
		r, err := s.Call(t.Context(), Request{
			Session: alice, Tool: "teller", Args: json.RawMessage(`{"n":7}`), Locale: "de-CH",
			Progress: func(p Progress) { said = append(said, p.Narration+" | "+p.String()) },
		})
		require.NoError(t, err)
		require.Equal(t, "Read 2 files.", r.Summary)
		require.Equal(t, []string{
			"Erzähle von 7 | Erzähle von 7",
			"Erzähle von 7 | reading a.txt",
			"Erzähle von 7 | reading a.txt: 1 of 2 files",
			"Erzähle von 7 | writing: 1 of 2 files",
			"Told 7 | writing: 1 of 2 files",
		}, said)
	})
}
